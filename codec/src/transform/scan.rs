//! Running sums, which the compiler does not vectorise.
#![allow(unsafe_code)]

#[cfg(all(target_arch = "x86_64", not(miri)))]
use crate::simd::has_wide;
use crate::transform::word::{Scan, Word};

pub(crate) fn scan_baseline<W: Word, const ZIGZAG: bool>(words: &mut [W], sum: &mut W) {
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
                // Each half filled with its sum; and the halves exchanged.
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
