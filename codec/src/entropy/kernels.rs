//! Inner loops, compiled for the processor at hand.
#![allow(unsafe_code)]

use crate::entropy::classes::{self, BitReader};
use crate::entropy::{contexts, rows};
use crate::simd::kernel;
use crate::transform::lanes::LANES;
use crate::transform::word::Word;

kernel! {
    with "bmi1,bmi2,lzcnt";
    /// Decodes classes from all lanes; see [`rows`].
    fn decode_rows(
        bases: &[u16; contexts::SUMS],
        slots: &[u32; rows::SLOTS],
        far: usize,
        states: &mut [u64; LANES],
        words: &mut &[u8],
        rows: &mut [u8],
    ) {
        rows::decode_rows(bases, slots, far, states, words, rows);
    }
}

kernel! {
    with "bmi1,bmi2,lzcnt";
    /// Encodes classes into all lanes; see [`rows`].
    fn encode_rows(
        steps: &[[rows::EncodeStep; 256]; contexts::MAX_CONTEXTS],
        classes: &[u8],
        assigned: &[u8],
        states: &mut [u64; LANES],
        words: &mut Vec<u32>,
    ) {
        rows::encode_rows(steps, classes, assigned, states, words);
    }
}

kernel! {
    with "bmi1,bmi2,lzcnt";
    /// Joins classes and extra bits into residuals; see [`classes`].
    fn join_residuals<W: Word>(rows: &[u8], reader: &mut BitReader<'_>, residuals: &mut [W]) {
        classes::join(rows, reader, residuals);
    }
}

kernel! {
    with "bmi1,bmi2,lzcnt";
    /// Splits residuals into classes and extra bits; see [`classes`].
    fn split_residuals<W: Word>(residuals: &[W], classes: &mut [u8], extra: &mut Vec<u8>) {
        classes::split(residuals, classes, extra);
    }
}

#[cfg(test)]
mod tests;
