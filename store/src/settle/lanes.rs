//! Which pack gets what: balanced by bytes, not by count.

use crate::pack::Lane;
use crate::sync::Mutex;

/// What each lane has got in this session. A file often is a single unit, so packs are balanced
/// over all files and not within each.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    bytes: Mutex<Vec<u64>>,
}

impl Lanes {
    /// The lane for so many bytes: of the first `count` the one that is furthest below the
    /// average. Only now is it known how large a unit has become, so whoever encoded it, it goes
    /// where it is missing.
    pub(super) fn choose(&self, count: usize, len: u64) -> Lane {
        let mut bytes = self.bytes.lock();
        if bytes.len() < count {
            // A lane that was not used before need not catch up.
            let least = bytes.iter().copied().min().unwrap_or(0);
            bytes.resize(count, least);
        }
        let (least, sum) = bytes
            .iter_mut()
            .take(count)
            .enumerate()
            .min_by_key(|(_, sum)| **sum)
            .map_or((0, None), |(lane, sum)| (lane, Some(sum)));
        if let Some(sum) = sum {
            *sum += len;
        }
        Lane(1 + least)
    }
}
