//! Contexts: which table a class is coded by.
//!
//! The context of a class is the number of thresholds that the sum of two
//! neighbours reaches: the class before and the one a row before, both in the
//! same lane. For the first row of a lane, made even, the class before counts
//! twice; the first of a lane has zeros before it, and the left-over ones as well.
#![forbid(unsafe_code)]

use crate::transform::lanes::{LANES, lane_len};

/// Probabilities are multiples of one over two to this.
pub(crate) const PRECISION: u32 = 11;
pub(crate) const MAX_CONTEXTS: usize = 8;
/// Distance of the second neighbour where no row length is known.
pub(crate) const NO_ROW: usize = 2;
/// Ratio of sizes that justifies twice as many contexts.
const WORTH: f64 = 1.003;
/// Sums of two classes.
pub(crate) const SUMS: usize = 512;

/// A partition of the sums of two neighbouring classes.
pub(crate) struct Contexts {
    map: [u8; SUMS],
    /// Where the slots of the context of a sum begin.
    pub(crate) bases: [u16; SUMS],
    pub(crate) thresholds: [u16; MAX_CONTEXTS - 1],
    pub(crate) len: usize,
}

impl Contexts {
    /// Partitions so that every context is about equally frequent.
    pub(crate) fn fit(classes: &[u8], far: usize) -> Self {
        let wanted = match classes.len() {
            0..4096 => 1,
            4096..16_384 => 3,
            16_384..65_536 => 6,
            _ => MAX_CONTEXTS as u64,
        };
        let mut counts = [0u32; SUMS];
        if far < classes.len() {
            // A part is enough for the distribution of the sums.
            let step = if classes.len() < 65_536 { 1 } else { 5 };
            let pairs = classes[far - 1..classes.len() - 1].iter().zip(classes);
            for (a, b) in pairs.step_by(step) {
                counts[*a as usize + *b as usize] += 1;
            }
        }
        let total: u64 = counts.iter().map(|&c| u64::from(c)).sum();
        let mut thresholds = [0; MAX_CONTEXTS - 1];
        let mut len = 1;
        let mut share = 1;
        let mut below = 0u64;
        for (sum, &count) in counts.iter().enumerate() {
            if below * wanted >= total * share && below > 0 && share < wanted {
                thresholds[len - 1] = sum as u16;
                len += 1;
                // A frequent sum may fill several shares at once.
                share = below * wanted / total.max(1) + 1;
            }
            below += u64::from(count);
        }
        Self::from_thresholds(thresholds, len)
    }

    pub(crate) fn from_thresholds(thresholds: [u16; MAX_CONTEXTS - 1], len: usize) -> Self {
        let mut map = [0; SUMS];
        for (sum, to) in map.iter_mut().enumerate() {
            *to = thresholds[..len - 1]
                .iter()
                .filter(|&&t| sum >= t as usize)
                .count() as u8;
        }
        Contexts {
            map,
            bases: map.map(|context| u16::from(context) << PRECISION),
            thresholds,
            len,
        }
    }

    /// Halves their number as long as that loses next to nothing: fewer tables
    /// stay in the L1 cache.
    pub(crate) fn merge(&mut self, counts: &mut Vec<[u32; 256]>, assigned: &mut [u8]) {
        let cost = |counts: &[u32; 256]| -> f64 {
            let total: u32 = counts.iter().sum();
            let plogp = |count: u32| f64::from(count) * f64::from(count.max(1)).log2();
            // The table itself costs about nine bits per class.
            let used = counts.iter().filter(|&&count| count > 0).count();
            plogp(total) - counts.iter().map(|&count| plogp(count)).sum::<f64>() + 9.0 * used as f64
        };
        let mut shift = 0;
        while counts.len() > 1 {
            let joined = |pair: &[[u32; 256]]| -> [u32; 256] {
                std::array::from_fn(|i| pair.iter().map(|counts| counts[i]).sum())
            };
            let before: f64 = counts.iter().map(cost).sum();
            let after: f64 = counts.chunks(2).map(|pair| cost(&joined(pair))).sum();
            if after > before * WORTH {
                break;
            }
            let len = counts.len().div_ceil(2);
            for i in 0..len {
                let end = counts.len().min(2 * i + 2);
                counts[i] = joined(&counts[2 * i..end]);
            }
            counts.truncate(len);
            shift += 1;
        }
        if shift > 0 {
            let mut thresholds = [0; MAX_CONTEXTS - 1];
            for (i, to) in thresholds[..counts.len() - 1].iter_mut().enumerate() {
                *to = self.thresholds[((i + 1) << shift) - 1];
            }
            *self = Self::from_thresholds(thresholds, counts.len());
            for context in assigned {
                *context >>= shift;
            }
        }
    }

    /// The context of every class.
    pub(crate) fn assign(&self, classes: &[u8], far: usize, contexts: &mut Vec<u8>) {
        contexts.clear();
        contexts.resize(classes.len(), self.map[0]);
        let lane = lane_len(classes.len());
        if lane == 0 {
            return;
        }
        let lanes = contexts
            .chunks_exact_mut(lane)
            .zip(classes.chunks_exact(lane));
        for (contexts, classes) in lanes.take(LANES) {
            let start = first_row(far, lane);
            for (to, west) in contexts[1..].iter_mut().zip(&classes[..start - 1]) {
                *to = self.map[*west as usize * 2];
            }
            if start < lane {
                let west = &classes[start - 1..];
                let north = &classes[start - far..];
                for ((to, west), north) in contexts[start..].iter_mut().zip(west).zip(north) {
                    *to = self.map[*west as usize + *north as usize];
                }
            }
        }
    }
}

/// Classes of a lane that have no second neighbour.
pub(crate) fn first_row(far: usize, lane: usize) -> usize {
    far.next_multiple_of(2).min(lane)
}

/// How far back the second neighbour is.
pub(crate) fn second_neighbour(row: usize, classes: usize) -> usize {
    // Where rows are as long as lanes, hardly any class would have one.
    if row >= 2 && row <= classes / LANES / 4 {
        row
    } else {
        NO_ROW
    }
}
