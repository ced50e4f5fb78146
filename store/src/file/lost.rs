//! Ranges of a file that were accepted from a program and could not be stored.

use std::ops::Range;
use std::sync::Arc;

use crate::Error;

/// Ranges in order, apart from each other, and why they were lost.
#[derive(Debug, Default)]
pub(crate) struct LostRanges {
    ranges: Vec<Range<u64>>,
    cause: Option<Arc<Error>>,
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

    /// Why, if anything is lost.
    pub(crate) fn cause(&self) -> Option<&Arc<Error>> {
        self.cause.as_ref().filter(|_| !self.is_empty())
    }

    pub(crate) fn overlaps(&self, range: &Range<u64>) -> bool {
        self.ranges
            .iter()
            .any(|lost| lost.start < range.end && range.start < lost.end)
    }

    pub(crate) fn insert(&mut self, range: Range<u64>, cause: Arc<Error>) {
        self.cause = Some(cause);
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
        assert!(lost.cause().is_none());
        for range in [10..20, 40..50, 20..30] {
            lost.insert(range, Arc::new(Error::NoSpace));
        }
        assert_eq!(lost.ranges(), [10..30, 40..50]);
        assert!(lost.cause().is_some_and(|cause| cause.is_full()));
        assert!(lost.overlaps(&(0..11)) && lost.overlaps(&(29..60)));
        assert!(!lost.overlaps(&(30..40)) && !lost.overlaps(&(50..60)));
        lost.remove(15..45);
        assert_eq!(lost.ranges(), [10..15, 45..50]);
        assert_eq!(lost.take_unnamed().as_deref(), Some("10-29, 40-49"));
        assert_eq!(lost.take_unnamed(), None);
        assert_eq!(lost.to_string(), "10-14, 45-49");
        lost.remove(0..100);
        assert!(lost.is_empty() && lost.cause().is_none());
    }
}
