//! Places at which a file is tried.

/// Spots at least, if there are as many bytes.
const LEAST: usize = 32;
/// Bytes from one to the next in a short file.
const STRIDE: u64 = 4096;

/// Places that are spread evenly over bytes whose number shows only in the end.
pub(super) struct Spots {
    places: Vec<u64>,
    stride: u64,
    /// Bytes up to the next spot, and up to now.
    next: u64,
    seen: u64,
}

impl Spots {
    pub(super) fn new() -> Self {
        Self {
            places: Vec::new(),
            stride: STRIDE,
            next: 0,
            seen: 0,
        }
    }

    /// Takes in a range; they must come in order.
    pub(super) fn add(&mut self, offset: u64, len: u64) {
        while self.next < self.seen + len {
            self.places.push(offset + (self.next - self.seen));
            self.next += self.stride;
            if self.places.len() == 2 * LEAST {
                self.places = self.places.iter().copied().step_by(2).collect();
                self.stride *= 2;
            }
        }
        self.seen += len;
    }

    /// All of them, in such an order that also the first few are spread over the file.
    pub(super) fn into_places(self) -> Vec<u64> {
        let mut order: Vec<u32> = (0..self.places.len() as u32).collect();
        order.sort_by_key(|number| number.reverse_bits());
        order
            .into_iter()
            .map(|number| self.places[number as usize])
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spots_are_spread_over_what_is_stored_and_so_are_the_first_few() {
        let mut spots = Spots::new();
        for extent in 0..10_000_u64 {
            spots.add((extent << 40) + (7 << 60) * (extent / 5000), 1 << 20);
        }
        let places = spots.into_places();
        assert!((LEAST..2 * LEAST).contains(&places.len()));
        let behind = |places: &[u64]| places.iter().filter(|&&place| place >= 7 << 60).count();
        let half = places.len() / 2;
        assert!(behind(&places).abs_diff(half) <= places.len() / 8);
        assert!((3..=5).contains(&behind(&places[..8])), "{places:?}");
    }

    #[test]
    fn the_shortest_file_has_several() {
        let mut spots = Spots::new();
        spots.add(0, 64 << 10);
        assert_eq!(spots.into_places().len(), 16);
    }
}
