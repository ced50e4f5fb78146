//! Inner loops, compiled for the processor at hand.
#![allow(unsafe_code)]

use crate::simd::kernel;
use crate::transform::decimal::FloatWord;
use crate::transform::float;
use crate::transform::word::Word;

/// Words per step: they are read once per column, and stay in the L1 cache.
const STEP: usize = 1024;

kernel! {
    /// Splits words into byte-columns of length `n`, the least significant byte
    /// first; the words go to place `at` of each column.
    fn split_columns<W: Word>(words: &[W], n: usize, at: usize, columns: &mut [u8]) {
        if n == 0 {
            return;
        }
        for (step, words) in words.chunks(STEP).enumerate() {
            for (b, column) in columns.chunks_exact_mut(n).enumerate() {
                let column = &mut column[at + step * STEP..][..words.len()];
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
    /// Undoes [`split_columns()`], with the columns wherever they lie.
    fn join_columns<W: Word>(columns: &[&[u8]; 8], words: &mut [W]) {
        W::join(columns, words);
    }
}

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
    /// Undoes [`zigzag_all()`].
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
    /// Undoes [`split_decimals()`].
    fn join_decimals<W: FloatWord>(words: &mut [W], scale: f64, errors: &[u8]) {
        for (word, error) in words.iter_mut().zip(errors) {
            *word = W::join_decimal(*word, error.unzigzag(), scale);
        }
    }
}

kernel! {
    /// Floats to residuals; see [`float`].
    fn float_residuals<W: FloatWord>(slope: float::Slope, words: &[W], out: &mut [W]) {
        float::residuals(slope, words, out);
    }
}

kernel! {
    /// Undoes [`float_residuals()`] in place.
    fn float_restore<W: FloatWord>(slope: float::Slope, words: &mut [W]) {
        float::restore(slope, words);
    }
}

kernel! {
    /// Clears `tame` if any of the words is not.
    fn all_tame<W: FloatWord>(words: &[W], tame: &mut bool) {
        *tame &= words.iter().fold(true, |all, word| all & word.is_tame());
    }
}

#[cfg(test)]
mod tests;
