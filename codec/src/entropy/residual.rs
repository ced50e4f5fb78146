//! Codes residuals: range-coded classes, and extra bits.
//!
//! [`classes`](crate::entropy::classes) splits a residual into its class and
//! extra bits. Classes are range-coded by [`rans`] under a context: how large
//! the residuals to the west (two before) and to the north were. Extra bits
//! are stored uncoded.
#![forbid(unsafe_code)]

use crate::entropy::classes::BitReader;
use crate::entropy::contexts::{Contexts, second_neighbour};
use crate::entropy::{kernels, rans};
use crate::error::Error;
use crate::frame::Recipe;
use crate::transform::word::Word;

/// Scratch memory of [`encode`] and [`decode`].
#[derive(Default)]
pub(crate) struct ResidualScratch {
    classes: Vec<u8>,
    contexts: Vec<u8>,
    rans: rans::RansScratch,
}

/// The row length that contexts may rely on: none where exceptions have been
/// taken out, because the elements then no longer lie in rows.
pub(crate) fn context_row(recipe: &Recipe, whole: bool) -> usize {
    if whole { recipe.row as usize } else { 0 }
}

/// Appends the coded classes to `coded` and replaces `extra` with the extra bits.
pub(crate) fn encode<W: Word>(
    residuals: &[W],
    row: usize,
    scratch: &mut ResidualScratch,
    coded: &mut Vec<u8>,
    extra: &mut Vec<u8>,
) {
    let classes = &mut scratch.classes;
    classes.clear();
    classes.resize(residuals.len(), 0);
    kernels::split_residuals(residuals, classes, extra);
    let far = second_neighbour(row, classes.len());
    let mut contexts = Contexts::fit(classes, far);
    contexts.assign(classes, far, &mut scratch.contexts);
    rans::encode(
        &mut contexts,
        classes,
        &mut scratch.contexts,
        &mut scratch.rans,
        coded,
    );
}

/// Fills `residuals` from coded classes and extra bits.
pub(crate) fn decode<W: Word>(
    coded: &[u8],
    extra: &[u8],
    row: usize,
    scratch: &mut ResidualScratch,
    residuals: &mut [W],
) -> Result<(), Error> {
    let classes = &mut scratch.classes;
    classes.resize(residuals.len(), 0);
    let far = second_neighbour(row, classes.len());
    rans::decode(coded, far, &mut scratch.rans, classes)?;
    let mut reader = BitReader::new(extra);
    kernels::join_residuals(classes, &mut reader, residuals);
    if reader.bytes_read() != extra.len() {
        return Err(Error::Malformed("extra bits of unexpected length"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round<W: Word + std::fmt::Debug>(residuals: &[W], row: usize) {
        let mut scratch = ResidualScratch::default();
        let (mut coded, mut extra) = (vec![9], Vec::new());
        encode(residuals, row, &mut scratch, &mut coded, &mut extra);
        let mut back = vec![W::default(); residuals.len()];
        decode(&coded[1..], &extra, row, &mut scratch, &mut back).unwrap();
        assert!(back == residuals);
    }

    #[test]
    fn residuals_of_any_size_come_back() {
        let mut seed = 7u64;
        let mut next = || {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            seed
        };
        // Miri is slow.
        let (most, shifts): (usize, &[u32]) = match cfg!(miri) {
            true => (100, &[40]),
            false => (70_000, &[0, 20, 40, 55, 63]),
        };
        for n in [1, 2, 3, 100, 5000, 70_000] {
            for &shift in shifts.iter().filter(|_| n <= most) {
                let wide: Vec<u64> = (0..n).map(|_| next() >> shift >> (next() >> 61)).collect();
                for row in [0, 1, 7, 1000] {
                    if cfg!(miri) && row != 7 {
                        continue;
                    }
                    round(&wide, row);
                    round(&wide.iter().map(|&w| w as u32).collect::<Vec<_>>(), row);
                    round(&wide.iter().map(|&w| w as u16).collect::<Vec<_>>(), row);
                    round(&wide.iter().map(|&w| w as u8).collect::<Vec<_>>(), row);
                }
            }
        }
    }
}
