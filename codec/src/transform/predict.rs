//! Integer predictors: their prediction is subtracted before an integer is stored.
//!
//! Lorenzo prediction over several dimensions is the difference along each in
//! turn, with the elements numbered straight on: no edge is special, and each
//! difference but the innermost is undone without a chain of dependences.
#![forbid(unsafe_code)]

use crate::frame::Predictor;
use crate::transform::kernels;
use crate::transform::word::Word;

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

/// The expansion of 1 - (1-S^a)(1-S^b)(1-S^c), where S^a shifts by a: which
/// earlier elements are added to a prediction, and which are subtracted.
pub(crate) struct Taps {
    taps: [(usize, bool); 7],
    len: usize,
}

impl Taps {
    pub(crate) fn new(strides: [usize; 3]) -> Self {
        let mut taps = [(0, false); 7];
        let mut len = 0;
        for pick in 1..8usize {
            let used = |bit: usize| pick >> bit & 1 == 1;
            if (0..3).any(|bit| used(bit) && strides[bit] == 0) {
                continue;
            }
            let back = (0..3)
                .filter(|&bit| used(bit))
                .map(|bit| strides[bit])
                .sum();
            taps[len] = (back, pick.count_ones() % 2 == 1);
            len += 1;
        }
        Taps { taps, len }
    }

    /// Distance back and whether it is added, for each element used.
    pub(crate) fn get(&self) -> &[(usize, bool)] {
        &self.taps[..self.len]
    }

    /// The prediction for `at` from the elements before it.
    #[inline(always)]
    pub(crate) fn predict<W: Word>(&self, words: &[W], at: usize) -> W {
        let mut sum = W::default();
        for &(back, plus) in self.get() {
            if back <= at {
                let word = words[at - back];
                sum = if plus { sum.add(word) } else { sum.sub(word) };
            }
        }
        sum
    }
}

/// Replaces numbers with zigzagged residuals.
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
            kernels::subtract(&mut words[stride..], scratch);
        }
    }
    kernels::zigzag_all(words);
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
    kernels::unzigzag_all(words);
    for stride in strides(predictor, row, plane).into_iter().rev() {
        match stride {
            0 => {}
            1 => {
                W::scan::<false>(words, &mut W::default());
            }
            _ => {
                let mut at = stride;
                while at < words.len() {
                    let len = stride.min(words.len() - at);
                    let (before, these) = words.split_at_mut(at);
                    kernels::add(&mut these[..len], &before[at - stride..]);
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
        for &predictor in Predictor::ALL {
            for (row, plane) in [(1, 1), (7, 70), (100, 300), (1000, 2000), (999, 5)] {
                let mut work = words.clone();
                residuals(predictor, row, plane, &mut work, &mut Vec::new());
                if !matches!(predictor, Predictor::Xor | Predictor::None) {
                    let taps = Taps::new(strides(predictor, row, plane));
                    for at in [0, 1, 6, 7, 8, 77, 99, 500, 999] {
                        let expected = words[at].wrapping_sub(taps.predict(&words, at));
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
