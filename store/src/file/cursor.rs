//! Where a file is being read, and which bytes a sequential reader needs next.

use std::ops::Range;

/// Bytes read in a row after which a reader counts as sequential.
const SEQUENTIAL: u64 = 256 << 10;
/// How far behind a sequential reader decoded frames are kept: its requests overtake each other.
const BEHIND: u64 = 4 << 20;
/// The window is moved on by steps of this size.
const STEP: u64 = 1 << 20;

/// Where a file is being read.
#[derive(Debug, Default)]
pub(super) struct ReadCursor {
    start: u64,
    next: u64,
    /// Bytes read since `start`.
    bytes: u64,
    /// Everything before has been requested.
    requested: u64,
    /// Everything before has been released.
    passed: u64,
}

/// The range that a sequential reader needs next, and the range it has passed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReadWindow {
    pub(crate) ahead: Range<u64>,
    pub(crate) behind: Range<u64>,
}

impl ReadCursor {
    /// Follows a read. Returns which range to decode ahead and which to release behind, when it is
    /// time to move the window of at most `limit` bytes.
    pub(super) fn follow(&mut self, offset: u64, len: u64, limit: u64) -> Option<ReadWindow> {
        let end = offset.saturating_add(len);
        // Requests of one reader overtake each other a little.
        if offset.abs_diff(self.next) <= STEP {
            self.bytes = self.bytes.saturating_add(len);
            self.next = self.next.max(end);
        } else {
            *self = Self {
                start: offset,
                next: end,
                bytes: len,
                requested: 0,
                passed: offset,
            };
        }
        // A reader of a few bytes here and there does not need the whole range.
        let dense = self.bytes >= (self.next - self.start) / 4 * 3;
        // Not much further ahead than the reader has come.
        let window = limit.min(self.bytes.saturating_mul(2));
        let wanted = self.next.saturating_add(window);
        if self.bytes < SEQUENTIAL
            || !dense
            || wanted < self.requested.saturating_add(STEP.min(window))
        {
            return None;
        }
        let from = self.requested.max(self.next);
        self.requested = wanted;
        let passed = self.next.saturating_sub(BEHIND).max(self.passed);
        Some(ReadWindow {
            ahead: from..wanted,
            behind: std::mem::replace(&mut self.passed, passed)..passed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 32 << 20;

    #[test]
    fn only_sequential_readers_are_followed() {
        let mut cursor = ReadCursor::default();
        let (mut random, mut windows) = (0, Vec::new());
        for i in 0..64u64 {
            let offset = (i * 7919 % 64) * (8 << 20);
            random += usize::from(cursor.follow(offset, 128 << 10, LIMIT).is_some());
        }
        assert_eq!(random, 0);
        for i in 0..64u64 {
            let offset = (1 << 39) + i * (200 << 10);
            random += usize::from(cursor.follow(offset, 16 << 10, LIMIT).is_some());
        }
        assert_eq!(random, 0, "a strided reader");
        for i in 0..64 {
            let offset = (1 << 40) + i * (128 << 10);
            windows.extend(cursor.follow(offset, 128 << 10, LIMIT));
        }
        assert!(windows.len() >= 4, "{windows:?}");
        for pair in windows.windows(2) {
            assert_eq!(
                pair[0].ahead.end, pair[1].ahead.start,
                "no gap, nothing twice"
            );
            assert_eq!(
                pair[0].behind.end, pair[1].behind.start,
                "no gap, nothing twice"
            );
        }
        let last = windows.last().unwrap();
        assert!(
            last.behind.end + BEHIND <= (1 << 40) + (64 << 17),
            "{last:?}"
        );
        assert!(last.behind.end > 1 << 40, "nothing is let go: {last:?}");
    }
}
