//! Predictors: what is subtracted from an integer before it is stored.
//!
//! Lorenzo prediction over several dimensions is the difference along each in
//! turn, with the elements numbered straight on: no edge is special, and each
//! difference but the innermost is undone without a chain of dependences.
#![forbid(unsafe_code)]

use crate::frame::Predictor;
use crate::simd;
use crate::word::Word;

/// The distances a predictor differences over, largest first; zero is unused.
pub(crate) fn strides(predictor: Predictor, row: u32, plane: u32) -> [usize; 3] {
    let (row, plane) = (row as usize, plane as usize);
    match predictor {
        Predictor::None | Predictor::Xor => [0, 0, 0],
        Predictor::Delta => [0, 0, 1],
        Predictor::Line => [0, 1, 1],
        Predictor::Row => [0, row, 0],
        Predictor::Plane => [0, row, 1],
        Predictor::Cube => [plane, row, 1],
    }
}

/// What the elements before `at` predict for it, by linear prediction.
#[inline(always)]
pub(crate) fn predicted<W: Word>(strides: [usize; 3], words: &[W], at: usize) -> W {
    // The expansion of 1 - (1-S^a)(1-S^b)(1-S^c) where S^a shifts by a.
    let get = |back: usize| {
        if back <= at {
            words[at - back]
        } else {
            W::default()
        }
    };
    let mut sum = W::default();
    let [a, b, c] = strides;
    for pick in 1..8usize {
        let mut back = 0;
        let mut unused = false;
        for (bit, stride) in [a, b, c].into_iter().enumerate() {
            if pick >> bit & 1 == 1 {
                unused |= stride == 0;
                back += stride;
            }
        }
        if unused {
            continue;
        }
        sum = if pick.count_ones() % 2 == 1 {
            sum.add(get(back))
        } else {
            sum.sub(get(back))
        };
    }
    sum
}

/// Replaces numbers by zigzagged residuals.
pub(crate) fn residuals<W: Word>(
    predictor: Predictor,
    row: u32,
    plane: u32,
    words: &mut [W],
    scratch: &mut Vec<W>,
) {
    if predictor == Predictor::Xor {
        let mut before = W::default();
        for word in words {
            let this = *word;
            *word = this.xor(before);
            before = this;
        }
        return;
    }
    for stride in strides(predictor, row, plane) {
        if stride > 0 && stride < words.len() {
            scratch.clear();
            scratch.extend_from_slice(words);
            simd::subtract(&mut words[stride..], scratch);
        }
    }
    simd::zigzag_all(words);
}

/// Undoes [`residuals`].
pub(crate) fn restore<W: Word>(predictor: Predictor, row: u32, plane: u32, words: &mut [W]) {
    if predictor == Predictor::Xor {
        let mut before = W::default();
        for word in words {
            before = before.xor(*word);
            *word = before;
        }
        return;
    }
    simd::unzigzag_all(words);
    for stride in strides(predictor, row, plane).into_iter().rev() {
        match stride {
            0 => {}
            1 => {
                let mut sum = W::default();
                for word in words.iter_mut() {
                    sum = sum.add(*word);
                    *word = sum;
                }
            }
            _ => {
                let mut at = stride;
                while at < words.len() {
                    let len = stride.min(words.len() - at);
                    let (before, these) = words.split_at_mut(at);
                    simd::add(&mut these[..len], &before[at - stride..]);
                    at += len;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_predictor_is_undone() {
        let words: Vec<u32> = (0..1000u32)
            .map(|i| i.wrapping_mul(i).wrapping_mul(2_654_435_769))
            .collect();
        for predictor in Predictor::ALL {
            for (row, plane) in [(1, 1), (7, 70), (100, 300), (1000, 2000), (999, 5)] {
                let mut work = words.clone();
                residuals(predictor, row, plane, &mut work, &mut Vec::new());
                if !matches!(predictor, Predictor::Xor | Predictor::None) {
                    let strides = strides(predictor, row, plane);
                    for at in [0, 1, 6, 7, 8, 77, 99, 500, 999] {
                        let expected = words[at].wrapping_sub(predicted(strides, &words, at));
                        assert_eq!(
                            work[at].unzigzag(),
                            expected,
                            "{predictor:?} {row} {plane} {at}"
                        );
                    }
                }
                restore(predictor, row, plane, &mut work);
                assert_eq!(work, words, "{predictor:?} {row} {plane}");
            }
        }
    }
}
