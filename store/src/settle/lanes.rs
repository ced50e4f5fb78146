//! Distribution over packs: balanced by bytes, not by count.

use crate::pack::Lane;
use crate::primitives::Mutex;

/// Bytes of each lane in this session. A file often is a single unit, so packs are balanced over
/// all files and not within each.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    bytes: Mutex<Vec<u64>>,
}

impl Lanes {
    /// The lane for `len` bytes: the one with the fewest among the first `count`. The size of a
    /// unit is known only now, so it does not matter which worker encoded it.
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
