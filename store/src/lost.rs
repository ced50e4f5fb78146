//! Ranges of a file that were accepted from a program and could not be stored.

use std::ops::Range;

/// Ranges in order, apart from each other, and why they were lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LostRanges {
    ranges: Vec<Range<u64>>,
    errno: i32,
    /// Ranges that the log has not named yet.
    unnamed: Vec<Range<u64>>,
}

impl LostRanges {
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(crate) fn ranges(&self) -> &[Range<u64>] {
        &self.ranges
    }

    /// The errno that says why, if anything is lost.
    pub(crate) fn errno(&self) -> Option<i32> {
        (!self.is_empty()).then_some(self.errno)
    }

    pub(crate) fn overlaps(&self, range: &Range<u64>) -> bool {
        self.ranges
            .iter()
            .any(|lost| lost.start < range.end && range.start < lost.end)
    }

    pub(crate) fn insert(&mut self, range: Range<u64>, errno: i32) {
        self.errno = errno;
        insert(&mut self.ranges, range.clone());
        insert(&mut self.unnamed, range);
    }

    /// The range has been written again, or is not part of the file any more.
    pub(crate) fn remove(&mut self, range: Range<u64>) {
        if !self.overlaps(&range) {
            return;
        }
        self.ranges = std::mem::take(&mut self.ranges)
            .into_iter()
            .flat_map(|lost| {
                [
                    lost.start..lost.end.min(range.start),
                    lost.start.max(range.end)..lost.end,
                ]
            })
            .filter(|left| left.start < left.end)
            .collect();
    }

    /// Ranges that the log has not named yet.
    pub(crate) fn take_unnamed(&mut self) -> Option<String> {
        let ranges = std::mem::take(&mut self.unnamed);
        (!ranges.is_empty()).then(|| show(&ranges))
    }
}

impl std::fmt::Display for LostRanges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&show(&self.ranges))
    }
}

/// The first and the last byte of each range.
fn show(ranges: &[Range<u64>]) -> String {
    const SHOWN: usize = 8;
    let mut shown: Vec<String> = ranges
        .iter()
        .take(SHOWN)
        .map(|range| format!("{}-{}", range.start, range.end - 1))
        .collect();
    if ranges.len() > SHOWN {
        shown.push(format!("and {} more ranges", ranges.len() - SHOWN));
    }
    shown.join(", ")
}

fn insert(ranges: &mut Vec<Range<u64>>, mut new: Range<u64>) {
    ranges.retain(|old| {
        let apart = old.end < new.start || new.end < old.start;
        if !apart {
            new = old.start.min(new.start)..old.end.max(new.end);
        }
        apart
    });
    let at = ranges.partition_point(|old| old.start < new.start);
    ranges.insert(at, new);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_grow_together_and_go_where_they_are_written_again() {
        let mut lost = LostRanges::default();
        assert_eq!(lost.errno(), None);
        lost.insert(10..20, 28);
        lost.insert(40..50, 28);
        lost.insert(20..30, 28);
        assert_eq!(lost.ranges(), [10..30, 40..50]);
        assert_eq!(lost.errno(), Some(28));
        assert!(lost.overlaps(&(0..11)) && lost.overlaps(&(29..60)));
        assert!(!lost.overlaps(&(30..40)) && !lost.overlaps(&(50..60)));
        lost.remove(15..45);
        assert_eq!(lost.ranges(), [10..15, 45..50]);
        assert_eq!(lost.take_unnamed().as_deref(), Some("10-29, 40-49"));
        assert_eq!(lost.take_unnamed(), None);
        assert_eq!(lost.to_string(), "10-14, 45-49");
        lost.remove(0..100);
        assert!(lost.is_empty());
    }
}
