//! Packs that must not go yet because frames in them wait for a commit.

use std::collections::HashMap;
use std::sync::Arc;

use crate::sync::Mutex;

/// Counts pins per pack.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    counts: Mutex<HashMap<u64, usize>>,
}

/// Keeps a pack while it exists.
#[derive(Debug)]
pub(crate) struct Pin {
    pins: Arc<Pins>,
    pack: u64,
}

impl Pins {
    pub(crate) fn pin(self: &Arc<Self>, pack: u64) -> Pin {
        *self.counts.lock().entry(pack).or_default() += 1;
        Pin {
            pins: Arc::clone(self),
            pack,
        }
    }

    pub(crate) fn is_pinned(&self, pack: u64) -> bool {
        self.counts.lock().contains_key(&pack)
    }
}

impl Pin {
    pub(crate) fn pack(&self) -> u64 {
        self.pack
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut counts = self.pins.counts.lock();
        if let Some(count) = counts.get_mut(&self.pack) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.pack);
            }
        }
    }
}
