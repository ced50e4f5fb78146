//! Kernels compiled twice: for the baseline of the target, and for the vector
//! units that the processor turns out to have.
//!
//! The kernels themselves are plain safe loops that the compiler vectorises;
//! the only unsafe act is to call the second copy, after asking the processor.
//! The baseline copy is the scalar twin that the tests compare with.
#![allow(unsafe_code)]

/// Defines a kernel: `name` picks a copy at run time, `name::baseline` is the
/// twin. Table look-ups do better without vectors: gathering is slow.
macro_rules! kernel {
    ($(#[$doc:meta])* fn $($rest:tt)*) => {
        kernel! { with "avx2,bmi1,bmi2,lzcnt"; $(#[$doc])* fn $($rest)* }
    };
    (with $features:literal; $(#[$doc:meta])* fn $name:ident $(<$word:ident: $bound:path>)? ($($arg:ident: $type:ty),* $(,)?) $body:block) => {
        $(#[$doc])*
        #[inline]
        #[allow(clippy::too_many_arguments)]
        pub(crate) fn $name $(<$word: $bound>)? ($($arg: $type),*) {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            if has_wide() {
                // SAFETY: the processor has just been asked for all of it.
                return unsafe { $name::wide($($arg),*) };
            }
            $name::baseline($($arg),*)
        }

        pub(crate) mod $name {
            #[allow(unused_imports)]
            use super::*;

            #[inline(always)]
            #[allow(clippy::too_many_arguments)]
            pub(crate) fn baseline $(<$word: $bound>)? ($($arg: $type),*) $body

            /// # Safety
            /// The processor must have what [`has_wide`] asks for.
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            #[target_feature(enable = $features)]
            #[allow(clippy::too_many_arguments)]
            pub(super) unsafe fn wide $(<$word: $bound>)? ($($arg: $type),*) {
                baseline($($arg),*)
            }
        }
    };
}

/// Whether the processor has the vectors and bit operations of the wide copies.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
fn has_wide() -> bool {
    use std::arch::is_x86_feature_detected as has;
    has!("avx2") && has!("bmi1") && has!("bmi2") && has!("lzcnt")
}

use crate::decimal::FloatWord;
use crate::rans;
use crate::real;
use crate::residual::{self, BitReader};
use crate::word::Word;

/// Words per step: what is read once and written to every column stays in the
/// innermost cache.
const BLOCK: usize = 1024;

kernel! {
    /// Splits words into byte-columns of length `n`, the least significant byte
    /// first; the words go to place `at` of each column.
    fn split_columns<W: Word>(words: &[W], n: usize, at: usize, columns: &mut [u8]) {
        if n == 0 {
            return;
        }
        for (block, words) in words.chunks(BLOCK).enumerate() {
            for (b, column) in columns.chunks_exact_mut(n).enumerate() {
                let column = &mut column[at + block * BLOCK..][..words.len()];
                for (to, word) in column.iter_mut().zip(words) {
                    *to = word.byte(b);
                }
            }
        }
    }
}

kernel! {
    /// Zigzagged differences between neighbours; the first has `before` before it.
    fn zigzag_delta<W: Word>(words: &[W], before: W, out: &mut [W]) {
        let n = words.len();
        if n == 0 {
            return;
        }
        out[0] = words[0].sub(before).zigzag();
        for ((to, this), before) in out[1..n].iter_mut().zip(&words[1..]).zip(&words[..n - 1]) {
            *to = this.sub(*before).zigzag();
        }
    }
}

kernel! {
    /// Undoes [`split_columns`], with the columns wherever they lie.
    fn join_columns<W: Word>(columns: &[&[u8]; 8], words: &mut [W]) {
        W::join(columns, words);
    }
}

/// Running sums, for which the compiler finds no vector form by itself.
pub(crate) trait Scan: Sized {
    /// Replaces differences, zigzagged if `ZIGZAG`, by their sums, going on from `sum`.
    fn scan<const ZIGZAG: bool>(words: &mut [Self], sum: &mut Self);
}

fn scan_baseline<W: Word, const ZIGZAG: bool>(words: &mut [W], sum: &mut W) {
    let mut before = *sum;
    for word in words {
        before = before.add(if ZIGZAG { word.unzigzag() } else { *word });
        *word = before;
    }
    *sum = before;
}

/// Sums within a vector by doubling distances, then across its halves; only
/// the carry from vector to vector is a chain.
macro_rules! scan {
    ($type:ty, $wide:ident, $add:ident, $sub:ident, $half:expr, $one:expr, [$($shift:literal),*]) => {
        impl Scan for $type {
            #[inline]
            fn scan<const ZIGZAG: bool>(words: &mut [Self], sum: &mut Self) {
                #[cfg(all(target_arch = "x86_64", not(miri)))]
                if has_wide() {
                    // SAFETY: the processor has just been asked for AVX2.
                    return unsafe { $wide::<ZIGZAG>(words, sum) };
                }
                scan_baseline::<$type, ZIGZAG>(words, sum);
            }
        }

        /// # Safety
        /// The processor must have AVX2.
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        #[target_feature(enable = "avx2")]
        unsafe fn $wide<const ZIGZAG: bool>(words: &mut [$type], sum: &mut $type) {
            use std::arch::x86_64::*;
            const BYTES: i8 = size_of::<$type>() as i8;
            const COUNT: usize = 32 / BYTES as usize;
            let mut spread = [0i8; 32];
            for (i, to) in spread.iter_mut().enumerate() {
                *to = 16 - BYTES + (i as i8 & (BYTES - 1));
            }
            // SAFETY: the array is as long as the vector.
            let last = unsafe { _mm256_loadu_si256(spread.as_ptr().cast()) };
            let upper = _mm256_set_epi64x(-1, -1, 0, 0);
            let mut start = [*sum; COUNT];
            // SAFETY: the array is as long as the vector.
            let mut carry = unsafe { _mm256_loadu_si256(start.as_ptr().cast()) };
            let mut vectors = words.chunks_exact_mut(COUNT);
            for vector in &mut vectors {
                // SAFETY: the piece is as long as the vector.
                let mut x = unsafe { _mm256_loadu_si256(vector.as_ptr().cast()) };
                if ZIGZAG {
                    let sign = $sub(_mm256_setzero_si256(), _mm256_and_si256(x, $one));
                    x = _mm256_xor_si256($half(x), sign);
                }
                $(x = $add(x, _mm256_slli_si256::<$shift>(x));)*
                // The sum of either half all over it; and the halves exchanged.
                let ends = _mm256_shuffle_epi8(x, last);
                let swapped = _mm256_permute4x64_epi64::<0b01_00_11_10>(ends);
                x = $add(x, $add(carry, _mm256_and_si256(swapped, upper)));
                carry = $add(carry, $add(ends, swapped));
                // SAFETY: the piece is as long as the vector.
                unsafe { _mm256_storeu_si256(vector.as_mut_ptr().cast(), x) };
            }
            // SAFETY: the array is as long as the vector.
            unsafe { _mm256_storeu_si256(start.as_mut_ptr().cast(), carry) };
            *sum = start[0];
            scan_baseline::<$type, ZIGZAG>(vectors.into_remainder(), sum);
        }
    };
}

scan!(
    u8,
    scan_8,
    _mm256_add_epi8,
    _mm256_sub_epi8,
    |x| _mm256_and_si256(_mm256_srli_epi16::<1>(x), _mm256_set1_epi8(0x7F)),
    _mm256_set1_epi8(1),
    [1, 2, 4, 8]
);
scan!(
    u16,
    scan_16,
    _mm256_add_epi16,
    _mm256_sub_epi16,
    |x| _mm256_srli_epi16::<1>(x),
    _mm256_set1_epi16(1),
    [2, 4, 8]
);
scan!(
    u32,
    scan_32,
    _mm256_add_epi32,
    _mm256_sub_epi32,
    |x| _mm256_srli_epi32::<1>(x),
    _mm256_set1_epi32(1),
    [4, 8]
);
scan!(
    u64,
    scan_64,
    _mm256_add_epi64,
    _mm256_sub_epi64,
    |x| _mm256_srli_epi64::<1>(x),
    _mm256_set1_epi64x(1),
    [8]
);

kernel! {
    /// Each byte less the byte before it, which for the first is `before`.
    fn byte_delta<W: Word>(bytes: &[W], before: W, out: &mut [W]) {
        if let (Some(first), Some(to)) = (bytes.first(), out.first_mut()) {
            *to = first.sub(before);
        }
        if bytes.len() > 1 {
            let n = bytes.len();
            for ((to, this), before) in out[1..n].iter_mut().zip(&bytes[1..]).zip(&bytes[..n - 1]) {
                *to = this.sub(*before);
            }
        }
    }
}

kernel! {
    /// Loads elements in either byte order.
    fn load_all<W: Word>(bytes: &[u8], big: bool, words: &mut [W]) {
        if big {
            for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(W::BYTES)) {
                *word = W::load(bytes, true);
            }
        } else {
            for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(W::BYTES)) {
                *word = W::load(bytes, false);
            }
        }
    }
}

kernel! {
    /// Stores elements in either byte order.
    fn store_all<W: Word>(words: &[W], big: bool, bytes: &mut [u8]) {
        if big {
            for (word, bytes) in words.iter().zip(bytes.chunks_exact_mut(W::BYTES)) {
                word.store(bytes, true);
            }
        } else {
            for (word, bytes) in words.iter().zip(bytes.chunks_exact_mut(W::BYTES)) {
                word.store(bytes, false);
            }
        }
    }
}

kernel! {
    /// Floats to integers in their order, or back.
    fn flip_all<W: Word>(words: &mut [W]) {
        for word in words {
            *word = word.flip();
        }
    }
}

kernel! {
    /// Residuals to small unsigned numbers.
    fn zigzag_all<W: Word>(words: &mut [W]) {
        for word in words {
            *word = word.zigzag();
        }
    }
}

kernel! {
    /// Undoes [`zigzag_all`].
    fn unzigzag_all<W: Word>(words: &mut [W]) {
        for word in words {
            *word = word.unzigzag();
        }
    }
}

kernel! {
    /// Subtracts the second from the first.
    fn subtract<W: Word>(words: &mut [W], before: &[W]) {
        for (word, before) in words.iter_mut().zip(before) {
            *word = word.sub(*before);
        }
    }
}

kernel! {
    /// Adds the second to the first.
    fn add<W: Word>(words: &mut [W], before: &[W]) {
        for (word, before) in words.iter_mut().zip(before) {
            *word = word.add(*before);
        }
    }
}

kernel! {
    /// Splits floats into decimal integers and zigzagged errors; sets the flag of those that cannot be.
    fn split_decimals<W: FloatWord>(words: &mut [W], scale: f64, errors: &mut [u8], flags: &mut [u8]) {
        for ((word, error), flag) in words.iter_mut().zip(errors).zip(flags) {
            let (integer, by, ok) = word.split(scale);
            *word = integer;
            *error = by.zigzag();
            *flag |= u8::from(!ok);
        }
    }
}

kernel! {
    /// Flags the words that equal `value`, and no others.
    fn flag_equal<W: Word>(words: &[W], value: W, flags: &mut [u8]) {
        for (word, flag) in words.iter().zip(flags) {
            *flag = u8::from(*word == value);
        }
    }
}

kernel! {
    /// Undoes [`split_decimals`].
    fn join_decimals<W: FloatWord>(words: &mut [W], scale: f64, errors: &[u8]) {
        for (word, error) in words.iter_mut().zip(errors) {
            *word = W::join_decimal(*word, error.unzigzag(), scale);
        }
    }
}

kernel! {
    /// Floats to residuals; see [`real`].
    fn real_residuals<W: FloatWord>(slope: real::Slope, words: &[W], out: &mut [W]) {
        real::residuals(slope, words, out);
    }
}

kernel! {
    /// Undoes [`real_residuals`] in place.
    fn real_restore<W: FloatWord>(slope: real::Slope, words: &mut [W]) {
        real::restore(slope, words);
    }
}

kernel! {
    /// Clears `tame` if any of the words is not.
    fn all_tame<W: FloatWord>(words: &[W], tame: &mut bool) {
        *tame &= words.iter().fold(true, |all, word| all & word.is_tame());
    }
}

kernel! {
    with "bmi1,bmi2,lzcnt";
    /// Classes off all lanes; see [`rans`].
    fn decode_rows(
        bases: &[u16; rans::SUMS],
        slots: &[u32; rans::SLOTS],
        far: usize,
        states: &mut [u64; rans::LANES],
        words: &mut &[u8],
        rows: &mut [u8],
    ) {
        rans::decode_rows(bases, slots, far, states, words, rows);
    }
}

kernel! {
    with "bmi1,bmi2,lzcnt";
    /// Classes on to all lanes; see [`rans`].
    fn encode_rows(
        steps: &[[rans::Step; 256]; rans::MAX_CONTEXTS],
        classes: &[u8],
        assigned: &[u8],
        states: &mut [u64; rans::LANES],
        words: &mut Vec<u32>,
    ) {
        rans::encode_rows(steps, classes, assigned, states, words);
    }
}

kernel! {
    with "bmi1,bmi2,lzcnt";
    /// Classes and extra bits to residuals; see [`residual`].
    fn join_residuals<W: Word>(rows: &[u8], reader: &mut BitReader<'_>, residuals: &mut [W]) {
        residual::join(rows, reader, residuals);
    }
}

kernel! {
    with "bmi1,bmi2,lzcnt";
    /// Residuals to classes and extra bits; see [`residual`].
    fn split_residuals<W: Word>(residuals: &[W], classes: &mut [u8], extra: &mut Vec<u8>) {
        residual::split(residuals, classes, extra);
    }
}

#[cfg(test)]
mod tests;
