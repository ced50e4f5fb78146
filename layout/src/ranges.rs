//! A set of byte ranges.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Serialize, Serializer};

/// The most ranges of a set; beyond it, gaps between ranges are closed.
const MAX_RANGES: usize = 1 << 14;

/// A set of bytes of a file as sorted, disjoint, non-adjacent ranges.
///
/// Its size is bounded: a set of too many ranges becomes coarser, so it may contain more than was
/// inserted, never less.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ranges {
    map: BTreeMap<u64, u64>,
    gap: u64,
}

impl Ranges {
    /// Adds a range.
    pub(crate) fn insert(&mut self, range: Range<u64>) {
        if range.start >= range.end {
            return;
        }
        let (mut start, mut end) = (range.start, range.end);
        let reach = end.saturating_add(self.gap);
        // Ranges that overlap or touch the new one are merged into it.
        while let Some((&at, &until)) = self.map.range(..=reach).next_back() {
            if until.saturating_add(self.gap) < start {
                break;
            }
            if at <= start && until >= end {
                return;
            }
            self.map.remove(&at);
            start = start.min(at);
            end = end.max(until);
        }
        self.map.insert(start, end);
        if self.map.len() > MAX_RANGES {
            self.coarsen();
        }
    }

    fn coarsen(&mut self) {
        while self.map.len() > MAX_RANGES / 2 {
            self.gap = (self.gap * 2).max(64);
            let old = std::mem::take(&mut self.map);
            let mut open: Option<Range<u64>> = None;
            for (start, end) in old {
                open = match open {
                    Some(range) if range.end.saturating_add(self.gap) >= start => {
                        Some(range.start..range.end.max(end))
                    }
                    Some(range) => {
                        self.map.insert(range.start, range.end);
                        Some(start..end)
                    }
                    None => Some(start..end),
                };
            }
            self.map.extend(open.map(|range| (range.start, range.end)));
        }
    }

    /// Whether any byte of `range` is in the set.
    #[must_use]
    pub fn touches(&self, range: &Range<u64>) -> bool {
        range.start < range.end
            && self
                .map
                .range(..range.end)
                .next_back()
                .is_some_and(|(_, &end)| end > range.start)
    }

    /// The ranges in order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.map.iter().map(|(&start, &end)| start..end)
    }

    /// Approximate memory that the set takes.
    pub(crate) fn memory(&self) -> usize {
        self.map.len() * 3 * size_of::<u64>()
    }

    /// How many bytes are in the set.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.map.iter().map(|(start, end)| end - start).sum()
    }
}

impl Serialize for Ranges {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(&self.map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ranges: &[(u64, u64)]) -> Ranges {
        let mut set = Ranges::default();
        for &(start, end) in ranges {
            set.insert(start..end);
        }
        set
    }

    #[test]
    fn overlapping_and_adjacent_ranges_melt() {
        let set = of(&[(10, 20), (30, 40), (20, 25), (5, 12), (38, 39), (24, 31)]);
        assert!(set.iter().eq(std::iter::once(5..40)));
        let set = of(&[(0, 1), (2, 3), (1, 2), (7, 9)]);
        assert_eq!(set.iter().collect::<Vec<_>>(), [0..3, 7..9]);
        assert_eq!(set.bytes(), 5);
    }

    #[test]
    fn a_write_between_ranges_touches_nothing() {
        let set = of(&[(0, 8), (100, 200)]);
        for (range, touched) in [
            (0..1, true),
            (7..9, true),
            (8..100, false),
            (8..101, true),
            (199..300, true),
            (200..300, false),
            (150..150, false),
        ] {
            assert_eq!(set.touches(&range), touched, "{range:?}");
        }
    }

    #[test]
    fn a_ragged_set_grows_coarser_and_loses_nothing() {
        let mut set = Ranges::default();
        for i in 0..100_000u64 {
            let at = i * 7919 % 100_000 * 1000;
            set.insert(at..at + 3);
        }
        assert!(set.iter().count() <= MAX_RANGES);
        for i in 0..100_000u64 {
            assert!(set.touches(&(i * 1000 + 2..i * 1000 + 3)));
        }
    }
}
