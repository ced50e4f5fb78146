//! Segments of numbers: map, set exceptions aside, predict; and back.
#![forbid(unsafe_code)]

use crate::Error;
use crate::decimal::{self, FloatWord};
use crate::exceptions::Exceptions;
use crate::frame::{NumberMap, Predictor, Recipe};
use crate::predict::{self, Taps};
use crate::real::Slope;
use crate::simd;

/// Elements per step of a pipeline.
const PIECE: usize = 1024;

/// Scratch memory for elements of one width.
#[derive(Default)]
pub(crate) struct Lane<W> {
    /// Numbers, then residuals.
    pub(crate) words: Vec<W>,
    spare: Vec<W>,
}

/// A lane for every width.
#[derive(Default)]
pub(crate) struct Lanes {
    pub(crate) one: Lane<u8>,
    pub(crate) two: Lane<u16>,
    pub(crate) four: Lane<u32>,
    pub(crate) eight: Lane<u64>,
}

/// Calls a generic function with the lane of a width.
macro_rules! with_lane {
    ($lanes:expr, $width:expr, $lane:ident => $body:expr) => {
        match $width {
            1 => {
                let $lane = &mut $lanes.one;
                $body
            }
            2 => {
                let $lane = &mut $lanes.two;
                $body
            }
            4 => {
                let $lane = &mut $lanes.four;
                $body
            }
            _ => {
                let $lane = &mut $lanes.eight;
                $body
            }
        }
    };
}
pub(crate) use with_lane;

/// What a segment leaves beside its residuals.
#[derive(Default)]
pub(crate) struct Residue {
    /// Errors of decimals, one byte each, zigzagged; empty for other maps.
    pub(crate) errors: Vec<u8>,
    /// One byte per element, not zero for exceptions.
    flags: Vec<u8>,
    exceptions: Exceptions,
    /// The exceptions as a stream.
    pub(crate) excepted: Vec<u8>,
}

impl Residue {
    /// Nothing beside the residuals.
    pub(crate) fn clear(&mut self) {
        self.errors.clear();
        self.excepted.clear();
    }
}

/// Turns a segment into residuals, left in the lane.
pub(crate) fn reduce<W: FloatWord>(
    lane: &mut Lane<W>,
    recipe: &Recipe,
    fill: Option<u64>,
    segment: &[u8],
    residue: &mut Residue,
) {
    let n = segment.len() / W::BYTES;
    let big = recipe.big_endian;
    lane.words.resize(n, W::default());
    simd::load_all(segment, big, &mut lane.words);
    residue.clear();
    if recipe.map == NumberMap::Real {
        lane.spare.resize(n, W::default());
        simd::real_residuals(Slope::new(recipe), &lane.words, &mut lane.spare);
        std::mem::swap(&mut lane.words, &mut lane.spare);
        return;
    }
    let words = &mut lane.words[..];
    let flags = &mut residue.flags;
    flags.clear();
    if let Some(fill) = fill {
        flags.resize(n, 0);
        simd::flag_equal(words, W::from_u64(fill), flags);
    }
    match recipe.map {
        NumberMap::Bytes | NumberMap::Integer | NumberMap::Real => {}
        NumberMap::Ordered => simd::flip_all(words),
        NumberMap::Decimal => {
            residue.errors.resize(n, 0);
            flags.resize(n, 0);
            simd::split_decimals(
                words,
                decimal::scale(recipe.scale),
                &mut residue.errors,
                flags,
            );
        }
    }
    residue.exceptions.find(flags);
    residue
        .exceptions
        .write::<W>(segment, big, &mut residue.excepted);
    smooth_over(recipe, &residue.exceptions, words, &mut residue.errors);
    if recipe.predictor == Predictor::Delta {
        lane.spare.resize(n, W::default());
        simd::zigzag_delta(words, W::default(), &mut lane.spare);
        std::mem::swap(&mut lane.words, &mut lane.spare);
    } else {
        predict::residuals(
            recipe.predictor,
            recipe.row,
            recipe.plane,
            words,
            &mut lane.spare,
        );
    }
    // The zeros that stand for exceptions need not be stored.
    residue.exceptions.close_up(&mut lane.words);
    if recipe.map == NumberMap::Decimal {
        residue.exceptions.close_up(&mut residue.errors);
    }
}

/// [`reduce`] straight into columns, where nothing but the element before takes
/// part in the prediction and nothing can be an exception.
pub(crate) fn reduce_columns<W: FloatWord>(
    lane: &mut Lane<W>,
    recipe: &Recipe,
    segment: &[u8],
    columns: &mut [u8],
) {
    let n = segment.len() / W::BYTES;
    if lane.words.len() < PIECE {
        lane.words.resize(PIECE, W::default());
    }
    if lane.spare.len() < PIECE {
        lane.spare.resize(PIECE, W::default());
    }
    let mut before = W::default();
    for (piece, segment) in segment.chunks(PIECE * W::BYTES).enumerate() {
        let len = segment.len() / W::BYTES;
        let (words, spare) = (&mut lane.words[..len], &mut lane.spare[..len]);
        simd::load_all(segment, recipe.big_endian, words);
        if recipe.map == NumberMap::Ordered {
            simd::flip_all(words);
        }
        let done: &[W] = match (recipe.map, recipe.predictor) {
            (NumberMap::Bytes, _) => words,
            (_, Predictor::Delta) => {
                simd::zigzag_delta(words, before, spare);
                before = words.last().copied().unwrap_or(before);
                spare
            }
            _ => {
                simd::zigzag_all(words);
                words
            }
        };
        simd::split_columns(done, n, piece * PIECE, columns);
    }
}

/// Puts the predicted value in the place of every exception: its residual is
/// then zero, and what lies behind it is predicted from sound values.
fn smooth_over<W: FloatWord>(
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
                // No block is longer than a row, so that all but the west is in place.
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

/// Undoes [`reduce`]: residuals in the lane to raw bytes.
pub(crate) fn expand<W: FloatWord>(
    lane: &mut Lane<W>,
    recipe: &Recipe,
    errors: &mut Vec<u8>,
    excepted: &[u8],
    exceptions: &mut Exceptions,
    raw: &mut [u8],
) -> Result<(), Error> {
    let n = raw.len() / W::BYTES;
    if recipe.map == NumberMap::Real {
        if !excepted.is_empty() || lane.words.len() != n {
            return Err(Error::Malformed("reals with exceptions"));
        }
        simd::real_restore(Slope::new(recipe), &mut lane.words);
        simd::store_all(&lane.words, recipe.big_endian, raw);
        return Ok(());
    }
    let values = exceptions.read::<W>(excepted, n)?;
    exceptions.spread(&mut lane.words, n)?;
    if recipe.map == NumberMap::Decimal {
        exceptions.spread(errors, n)?;
    }
    let words = &mut lane.words[..];
    let mut sum = W::default();
    let fused = recipe.predictor == Predictor::Delta;
    if !fused {
        predict::restore(recipe.predictor, recipe.row, recipe.plane, words);
    }
    // In pieces that stay in the innermost cache from one step to the next.
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

/// [`expand`] straight from columns, where there are no exceptions and nothing
/// but the element before takes part in the prediction.
pub(crate) fn expand_columns<W: FloatWord>(
    lane: &mut Lane<W>,
    recipe: &Recipe,
    columns: &[&[u8]; 8],
    errors: &[u8],
    raw: &mut [u8],
) {
    let n = raw.len() / W::BYTES;
    if lane.words.len() < PIECE {
        lane.words.resize(PIECE, W::default());
    }
    let mut sum = W::default();
    for (piece, begin) in (0..n).step_by(PIECE).enumerate() {
        let end = n.min(begin + PIECE);
        let words = &mut lane.words[..end - begin];
        let part: [&[u8]; 8] = std::array::from_fn(|b| columns[b].get(begin..end).unwrap_or(&[]));
        simd::join_columns(&part, words);
        if recipe.predictor == Predictor::Delta {
            W::scan::<true>(words, &mut sum);
        } else {
            simd::unzigzag_all(words);
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
        NumberMap::Ordered => simd::flip_all(words),
        NumberMap::Decimal => {
            let errors = &errors[piece * PIECE..][..words.len()];
            simd::join_decimals(words, decimal::scale(recipe.scale), errors);
        }
    }
    let begin = piece * PIECE * W::BYTES;
    let raw = &mut raw[begin..begin + words.len() * W::BYTES];
    simd::store_all(words, recipe.big_endian, raw);
}
