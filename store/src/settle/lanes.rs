//! Which pack gets what: balanced by bytes, not by count.

use parking_lot::Mutex;

use crate::pack::Lane;

/// The lanes of a pass, one for each worker, and what each has got so far.
pub(super) struct Lanes {
    bytes: Mutex<Vec<u64>>,
}

impl Lanes {
    pub(super) fn new(count: usize) -> Self {
        Self {
            bytes: Mutex::new(vec![0; count]),
        }
    }

    /// The lane for so many bytes: the one that is furthest below the average. Only now is it
    /// known how large a unit has become, so whoever encoded it, it goes where it is missing.
    pub(super) fn choose(&self, len: u64) -> Lane {
        let mut bytes = self.bytes.lock();
        let (least, sum) = bytes
            .iter_mut()
            .enumerate()
            .min_by_key(|(_, sum)| **sum)
            .map_or((0, None), |(lane, sum)| (lane, Some(sum)));
        if let Some(sum) = sum {
            *sum += len;
        }
        Lane(1 + least)
    }
}
