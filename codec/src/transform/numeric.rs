//! Blocks of numbers: map to integers, set exceptions aside, predict; and back.
#![forbid(unsafe_code)]

use crate::error::Error;
use crate::frame::{NumberMap, Predictor, Recipe};
use crate::transform::decimal::{self, FloatWord};
use crate::transform::exceptions::Exceptions;
use crate::transform::float::Slope;
use crate::transform::kernels;
use crate::transform::predict::{self, Taps};

/// Elements per step of a pipeline.
const PIECE: usize = 1024;

/// Scratch memory for elements of one width.
#[derive(Default)]
pub(crate) struct WordScratch<W> {
    /// Numbers, then residuals.
    pub(crate) words: Vec<W>,
    spare: Vec<W>,
}

/// Scratch memory for every width.
#[derive(Default)]
pub(crate) struct WordScratches {
    pub(crate) one: WordScratch<u8>,
    pub(crate) two: WordScratch<u16>,
    pub(crate) four: WordScratch<u32>,
    pub(crate) eight: WordScratch<u64>,
}

/// Calls a generic function with the scratch memory of a width.
macro_rules! with_words {
    ($scratches:expr, $width:expr, $scratch:ident => $body:expr) => {
        match $width {
            1 => {
                let $scratch = &mut $scratches.one;
                $body
            }
            2 => {
                let $scratch = &mut $scratches.two;
                $body
            }
            4 => {
                let $scratch = &mut $scratches.four;
                $body
            }
            _ => {
                let $scratch = &mut $scratches.eight;
                $body
            }
        }
    };
}
pub(crate) use with_words;

/// The parts of a block besides its residuals.
#[derive(Default)]
pub(crate) struct SideStreams {
    /// Errors of decimals, one byte each, zigzagged; empty for other maps.
    pub(crate) errors: Vec<u8>,
    /// One byte per element, not zero for exceptions.
    flags: Vec<u8>,
    exceptions: Exceptions,
    /// The exceptions as a stream.
    pub(crate) excepted: Vec<u8>,
}

impl SideStreams {
    /// Nothing besides the residuals.
    pub(crate) fn clear(&mut self) {
        self.errors.clear();
        self.excepted.clear();
    }
}

/// Turns a block into residuals, left in `scratch.words`.
pub(crate) fn reduce<W: FloatWord>(
    scratch: &mut WordScratch<W>,
    recipe: &Recipe,
    fill: Option<u64>,
    block: &[u8],
    side: &mut SideStreams,
) {
    let n = block.len() / W::BYTES;
    let big = recipe.big_endian;
    scratch.words.resize(n, W::default());
    kernels::load_all(block, big, &mut scratch.words);
    side.clear();
    if recipe.map == NumberMap::Real {
        scratch.spare.resize(n, W::default());
        kernels::float_residuals(Slope::new(recipe), &scratch.words, &mut scratch.spare);
        std::mem::swap(&mut scratch.words, &mut scratch.spare);
        return;
    }
    let words = &mut scratch.words[..];
    let flags = &mut side.flags;
    flags.clear();
    if let Some(fill) = fill {
        flags.resize(n, 0);
        kernels::flag_equal(words, W::from_u64(fill), flags);
    }
    match recipe.map {
        NumberMap::Bytes | NumberMap::Integer | NumberMap::Real => {}
        NumberMap::Ordered => kernels::flip_all(words),
        NumberMap::Decimal => {
            side.errors.resize(n, 0);
            flags.resize(n, 0);
            kernels::split_decimals(words, decimal::scale(recipe.scale), &mut side.errors, flags);
        }
    }
    side.exceptions.find(flags);
    side.exceptions.write::<W>(block, big, &mut side.excepted);
    replace_exceptions(recipe, &side.exceptions, words, &mut side.errors);
    if recipe.predictor == Predictor::Delta {
        scratch.spare.resize(n, W::default());
        kernels::zigzag_delta(words, W::default(), &mut scratch.spare);
        std::mem::swap(&mut scratch.words, &mut scratch.spare);
    } else {
        predict::residuals(
            recipe.predictor,
            recipe.row,
            recipe.plane,
            words,
            &mut scratch.spare,
        );
    }
    // The zeros that stand for exceptions need not be stored.
    side.exceptions.remove_from(&mut scratch.words);
    if recipe.map == NumberMap::Decimal {
        side.exceptions.remove_from(&mut side.errors);
    }
}

/// [`reduce`] straight into columns, for predictions that use only the element
/// before, and blocks without exceptions.
pub(crate) fn reduce_columns<W: FloatWord>(
    scratch: &mut WordScratch<W>,
    recipe: &Recipe,
    block: &[u8],
    columns: &mut [u8],
) {
    let n = block.len() / W::BYTES;
    if scratch.words.len() < PIECE {
        scratch.words.resize(PIECE, W::default());
    }
    if scratch.spare.len() < PIECE {
        scratch.spare.resize(PIECE, W::default());
    }
    let mut before = W::default();
    for (piece, block) in block.chunks(PIECE * W::BYTES).enumerate() {
        let len = block.len() / W::BYTES;
        let (words, spare) = (&mut scratch.words[..len], &mut scratch.spare[..len]);
        kernels::load_all(block, recipe.big_endian, words);
        if recipe.map == NumberMap::Ordered {
            kernels::flip_all(words);
        }
        let done: &[W] = match (recipe.map, recipe.predictor) {
            (NumberMap::Bytes, _) => words,
            (_, Predictor::Delta) => {
                kernels::zigzag_delta(words, before, spare);
                before = words.last().copied().unwrap_or(before);
                spare
            }
            _ => {
                kernels::zigzag_all(words);
                words
            }
        };
        kernels::split_columns(done, n, piece * PIECE, columns);
    }
}

/// Replaces every exception by its predicted value: the residual is then zero,
/// and the elements behind it are predicted from ordinary values.
fn replace_exceptions<W: FloatWord>(
    recipe: &Recipe,
    exceptions: &Exceptions,
    words: &mut [W],
    errors: &mut [u8],
) {
    let row = recipe.row as usize;
    let (plane, reach) = match recipe.predictor {
        Predictor::Cube => (recipe.plane as usize, recipe.plane as usize + row + 1),
        _ => (row, row + 1),
    };
    let taps = Taps::new(predict::strides(recipe.predictor, recipe.row, recipe.plane));
    for &(start, len) in &exceptions.runs {
        let (start, end) = (start as usize, (start + len) as usize);
        if !errors.is_empty() {
            errors[start..end].fill(0);
        }
        match recipe.predictor {
            Predictor::None | Predictor::Delta | Predictor::Xor => {
                let before = if start > 0 && recipe.predictor != Predictor::None {
                    words[start - 1]
                } else {
                    W::default()
                };
                words[start..end].fill(before);
            }
            Predictor::Row if start >= row && row > 0 => {
                for at in (start..end).step_by(row) {
                    words.copy_within(at - row..at - row + row.min(end - at), at);
                }
            }
            Predictor::Plane | Predictor::Cube if start >= reach && row > 0 && plane >= row => {
                // One row at a time, so that all neighbours but the west are in place.
                for at in (start..end).step_by(row) {
                    let mut west = words[at - 1];
                    let (before, these) = words.split_at_mut(at);
                    let these = &mut these[..row.min(end - at)];
                    let steps = |back: usize| before[at - back - 1..].windows(2);
                    if recipe.predictor == Predictor::Plane {
                        for (word, n) in these.iter_mut().zip(steps(row)) {
                            west = west.add(n[1].sub(n[0]));
                            *word = west;
                        }
                    } else {
                        let others = steps(row).zip(steps(plane)).zip(steps(plane + row));
                        for (word, ((n, p), pn)) in these.iter_mut().zip(others) {
                            let step = n[1].sub(n[0]).add(p[1].sub(p[0])).sub(pn[1].sub(pn[0]));
                            west = west.add(step);
                            *word = west;
                        }
                    }
                }
            }
            _ => {
                for at in start..end {
                    words[at] = taps.predict(words, at);
                }
            }
        }
    }
}

/// Undoes [`reduce`]: residuals in `scratch.words` to raw bytes.
pub(crate) fn expand<W: FloatWord>(
    scratch: &mut WordScratch<W>,
    recipe: &Recipe,
    errors: &mut Vec<u8>,
    excepted: &[u8],
    exceptions: &mut Exceptions,
    raw: &mut [u8],
) -> Result<(), Error> {
    let n = raw.len() / W::BYTES;
    if recipe.map == NumberMap::Real {
        if !excepted.is_empty() || scratch.words.len() != n {
            return Err(Error::Malformed("reals with exceptions"));
        }
        kernels::float_restore(Slope::new(recipe), &mut scratch.words);
        kernels::store_all(&scratch.words, recipe.big_endian, raw);
        return Ok(());
    }
    let values = exceptions.read::<W>(excepted, n)?;
    exceptions.reinsert_into(&mut scratch.words, n)?;
    if recipe.map == NumberMap::Decimal {
        exceptions.reinsert_into(errors, n)?;
    }
    let words = &mut scratch.words[..];
    let mut sum = W::default();
    let fused = recipe.predictor == Predictor::Delta;
    if !fused {
        predict::restore(recipe.predictor, recipe.row, recipe.plane, words);
    }
    // In pieces that stay in the L1 cache from one step to the next.
    for (piece, words) in words.chunks_mut(PIECE).enumerate() {
        if fused {
            W::scan::<true>(words, &mut sum);
        }
        finish(recipe, piece, words, errors, raw);
    }
    exceptions.apply::<W>(values, recipe.big_endian, raw);
    Ok(())
}

/// Whether [`expand_columns`] can take the place of [`expand`], and
/// [`reduce_columns`] that of [`reduce`] if there are no exceptions.
pub(crate) fn is_local(recipe: &Recipe) -> bool {
    matches!(recipe.predictor, Predictor::None | Predictor::Delta)
}

/// [`expand`] straight from columns, for blocks without exceptions and
/// predictions that use only the element before.
pub(crate) fn expand_columns<W: FloatWord>(
    scratch: &mut WordScratch<W>,
    recipe: &Recipe,
    columns: &[&[u8]; 8],
    errors: &[u8],
    raw: &mut [u8],
) {
    let n = raw.len() / W::BYTES;
    if scratch.words.len() < PIECE {
        scratch.words.resize(PIECE, W::default());
    }
    let mut sum = W::default();
    for (piece, begin) in (0..n).step_by(PIECE).enumerate() {
        let end = n.min(begin + PIECE);
        let words = &mut scratch.words[..end - begin];
        let part: [&[u8]; 8] = std::array::from_fn(|b| columns[b].get(begin..end).unwrap_or(&[]));
        kernels::join_columns(&part, words);
        if recipe.predictor == Predictor::Delta {
            W::scan::<true>(words, &mut sum);
        } else {
            kernels::unzigzag_all(words);
        }
        finish(recipe, piece, words, errors, raw);
    }
}

/// Numbers to raw bytes, one piece.
fn finish<W: FloatWord>(
    recipe: &Recipe,
    piece: usize,
    words: &mut [W],
    errors: &[u8],
    raw: &mut [u8],
) {
    match recipe.map {
        NumberMap::Bytes | NumberMap::Integer | NumberMap::Real => {}
        NumberMap::Ordered => kernels::flip_all(words),
        NumberMap::Decimal => {
            let errors = &errors[piece * PIECE..][..words.len()];
            kernels::join_decimals(words, decimal::scale(recipe.scale), errors);
        }
    }
    let begin = piece * PIECE * W::BYTES;
    let raw = &mut raw[begin..begin + words.len() * W::BYTES];
    kernels::store_all(words, recipe.big_endian, raw);
}
