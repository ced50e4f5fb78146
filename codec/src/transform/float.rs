//! Floats predicted in floating point.
//!
//! Where the exponents of neighbours differ, as around zero, sums of ordered integers miss what
//! sums of floats hit. The elements are split into [`lanes`](crate::transform::lanes), the
//! left-over ones being a separate lane; each lane is predicted separately, with zeros before it,
//! so that a decoder can follow eight of them side by side:
//!
//! | predictor | predicted value |
//! |---|---|
//! | line | w + (w - ww) |
//! | plane | w + (n - nw) |
//! | cube | w + ((n - nw) + ((p - pw) - (pn - pnw))) |
//!
//! where w is the element before, n that a row before, p that a plane before,
//! and so on. The residual is the difference of the ordered integers. Only
//! elements too small for any of these sums to overflow are predicted this way,
//! so no infinity or NaN arises: the bits of a NaN are unspecified.
#![forbid(unsafe_code)]

use crate::frame::{Predictor, Recipe};
use crate::transform::decimal::FloatWord;
use crate::transform::lanes::{LANES, lane_len};

/// Distances and form of a prediction.
#[derive(Clone, Copy)]
pub(crate) struct Slope {
    predictor: Predictor,
    row: usize,
    plane: usize,
}

impl Slope {
    pub(crate) fn new(recipe: &Recipe) -> Self {
        Slope {
            predictor: recipe.predictor,
            row: recipe.row as usize,
            plane: recipe.plane as usize,
        }
    }

    /// Elements before that are needed.
    pub(crate) fn reach(&self) -> usize {
        match self.predictor {
            Predictor::Plane => self.row.saturating_add(1),
            Predictor::Cube => self.row.saturating_add(self.plane).saturating_add(1),
            _ => 2,
        }
    }

    /// The prediction from the elements that `before` gives by their distance.
    #[inline(always)]
    pub(crate) fn predict<W: FloatWord>(&self, before: impl Fn(usize) -> W) -> W {
        let (row, plane) = (self.row, self.plane);
        let minus = |a: usize, b: usize| before(a).float_sub(before(b));
        let slope = match self.predictor {
            Predictor::Plane => minus(row, row + 1),
            Predictor::Cube => minus(row, row + 1)
                .float_add(minus(plane, plane + 1).float_sub(minus(plane + row, plane + row + 1))),
            _ => minus(1, 2),
        };
        before(1).float_add(slope)
    }
}

/// Elements before `at`, or zeros.
#[inline(always)]
fn or_zero<W: FloatWord>(lane: &[W], at: usize) -> impl Fn(usize) -> W {
    move |back| match at.checked_sub(back) {
        Some(at) => lane[at],
        None => W::default(),
    }
}

/// Zigzagged residuals of `words`, to `out`.
#[inline(always)]
pub(crate) fn residuals<W: FloatWord>(slope: Slope, words: &[W], out: &mut [W]) {
    let len = lane_len(words.len());
    let (body, left_over) = words.split_at(len * LANES);
    let (out, out_left_over) = out.split_at_mut(len * LANES);
    let lanes = body
        .chunks_exact(len.max(1))
        .zip(out.chunks_exact_mut(len.max(1)));
    for (words, out) in lanes.chain([(left_over, out_left_over)]) {
        let n = words.len();
        let start = slope.reach().min(n);
        for at in 0..start {
            let predicted = slope.predict(or_zero(words, at));
            out[at] = words[at].flip().sub(predicted.flip()).zigzag();
        }
        // Slices of one length let the compiler drop every bounds check.
        let m = n - start;
        if m == 0 {
            continue;
        }
        let back = |distance: usize| &words[start - distance..][..m];
        let put = |at: usize, predicted: W| words[start + at].flip().sub(predicted.flip()).zigzag();
        let (row, plane) = (slope.row, slope.plane);
        let (out, w) = (&mut out[start..][..m], back(1));
        match slope.predictor {
            Predictor::Plane => {
                let (n, nw) = (back(row), back(row + 1));
                for at in 0..m {
                    out[at] = put(at, w[at].float_add(n[at].float_sub(nw[at])));
                }
            }
            Predictor::Cube => {
                let (n, nw) = (back(row), back(row + 1));
                let (p, pw) = (back(plane), back(plane + 1));
                let (pn, pnw) = (back(plane + row), back(plane + row + 1));
                for at in 0..m {
                    let above = p[at].float_sub(pw[at]).float_sub(pn[at].float_sub(pnw[at]));
                    let slope = n[at].float_sub(nw[at]).float_add(above);
                    out[at] = put(at, w[at].float_add(slope));
                }
            }
            _ => {
                let ww = back(2);
                for at in 0..m {
                    out[at] = put(at, w[at].float_add(w[at].float_sub(ww[at])));
                }
            }
        }
    }
}

/// Undoes [`residuals`] in place.
#[inline(always)]
#[allow(clippy::needless_range_loop)] // It is eight slices that are walked through.
pub(crate) fn restore<W: FloatWord>(slope: Slope, words: &mut [W]) {
    let len = lane_len(words.len());
    let (body, left_over) = words.split_at_mut(len * LANES);
    restore_lane(slope, left_over);
    let start = slope.reach().min(len);
    let mut lanes = body.chunks_exact_mut(len.max(1));
    let mut lanes: [&mut [W]; LANES] = std::array::from_fn(|_| lanes.next().unwrap_or_default());
    for lane in &mut lanes {
        restore_lane(slope, &mut lane[..start]);
    }
    if start == len {
        return;
    }
    if slope.predictor == Predictor::Line {
        let mut w: [W; LANES] = std::array::from_fn(|k| lanes[k][start - 1]);
        let mut ww: [W; LANES] = std::array::from_fn(|k| lanes[k][start - 2]);
        for at in start..len {
            for k in 0..LANES {
                let predicted = w[k].float_add(w[k].float_sub(ww[k]));
                let this = predicted.flip().add(lanes[k][at].unzigzag()).flip();
                lanes[k][at] = this;
                ww[k] = w[k];
                w[k] = this;
            }
        }
        return;
    }
    for at in start..len {
        for lane in &mut lanes {
            let predicted = slope.predict(|back| lane[at - back]);
            lane[at] = predicted.flip().add(lane[at].unzigzag()).flip();
        }
    }
}

#[inline(always)]
fn restore_lane<W: FloatWord>(slope: Slope, lane: &mut [W]) {
    for at in 0..lane.len() {
        let predicted = slope.predict(or_zero(lane, at));
        lane[at] = predicted.flip().add(lane[at].unzigzag()).flip();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round<W: FloatWord + std::fmt::Debug>(words: &[W]) {
        for predictor in [Predictor::Line, Predictor::Plane, Predictor::Cube] {
            for (row, plane) in [(1, 1), (1, 7), (7, 70), (100, 300), (999, 5), (5000, 9)] {
                let slope = Slope {
                    predictor,
                    row,
                    plane,
                };
                let mut work = vec![W::default(); words.len()];
                residuals(slope, words, &mut work);
                restore(slope, &mut work);
                assert!(work == words, "{predictor:?} {row} {plane}");
            }
        }
    }

    #[test]
    fn every_prediction_is_undone() {
        let most = if cfg!(miri) { 40 } else { 4001 };
        let lengths = [0, 1, 2, 15, 16, 17, 40, 1000, 4001];
        for n in lengths.into_iter().filter(|n| *n <= most) {
            let singles: Vec<u32> = (0..n)
                .map(|i| ((f64::from(i) / 9.0).sin() * (i % 7) as f64) as f32)
                .map(|x| if x.abs() < 0.05 { -0.0 } else { x }.to_bits())
                .collect();
            let doubles: Vec<u64> = (0..n)
                .map(|i| (f64::from(i) / 9.0).sin() * 1e300)
                .map(|x| if x.abs() < 1e298 { 3e-310 } else { x }.to_bits())
                .collect();
            round(&singles);
            round(&doubles);
        }
    }
}
