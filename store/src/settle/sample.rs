//! Points of a file at which settling is tried.

/// Minimum number of points, if there are enough bytes.
const LEAST: usize = 32;
/// Bytes from one point to the next in a short file.
const STRIDE: u64 = 4096;

/// Offsets spread evenly over a number of bytes that is known only at the end.
pub(super) struct SamplePoints {
    offsets: Vec<u64>,
    stride: u64,
    /// Bytes up to the next point, and up to now.
    next: u64,
    seen: u64,
}

impl SamplePoints {
    pub(super) fn new() -> Self {
        Self {
            offsets: Vec::new(),
            stride: STRIDE,
            next: 0,
            seen: 0,
        }
    }

    /// Adds a range; ranges must come in order.
    pub(super) fn add(&mut self, offset: u64, len: u64) {
        while self.next < self.seen + len {
            self.offsets.push(offset + (self.next - self.seen));
            self.next += self.stride;
            if self.offsets.len() == 2 * LEAST {
                self.offsets = self.offsets.iter().copied().step_by(2).collect();
                self.stride *= 2;
            }
        }
        self.seen += len;
    }

    /// All points, ordered so that the first few are also spread over the file.
    pub(super) fn into_offsets(self) -> Vec<u64> {
        let mut order: Vec<u32> = (0..self.offsets.len() as u32).collect();
        order.sort_by_key(|number| number.reverse_bits());
        order
            .into_iter()
            .map(|number| self.offsets[number as usize])
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_spread_over_what_is_stored_and_so_are_the_first_few() {
        let mut points = SamplePoints::new();
        for extent in 0..10_000_u64 {
            points.add((extent << 40) + (7 << 60) * (extent / 5000), 1 << 20);
        }
        let offsets = points.into_offsets();
        assert!((LEAST..2 * LEAST).contains(&offsets.len()));
        let behind = |offsets: &[u64]| offsets.iter().filter(|&&offset| offset >= 7 << 60).count();
        let half = offsets.len() / 2;
        assert!(behind(&offsets).abs_diff(half) <= offsets.len() / 8);
        assert!((3..=5).contains(&behind(&offsets[..8])), "{offsets:?}");
    }

    #[test]
    fn the_shortest_file_has_several() {
        let mut points = SamplePoints::new();
        points.add(0, 64 << 10);
        assert_eq!(points.into_offsets().len(), 16);
    }
}
