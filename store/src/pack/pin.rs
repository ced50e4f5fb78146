//! Pins: packs that must not be deleted yet because frames in them wait for a commit.

use std::collections::HashMap;
use std::sync::Arc;

use shale_index::extent::PackId;

use crate::primitives::Mutex;

/// Counts pins per pack.
#[derive(Debug, Default)]
pub(crate) struct Pins {
    counts: Mutex<HashMap<PackId, usize>>,
}

/// Keeps a pack while it exists.
#[derive(Debug)]
pub(crate) struct Pin {
    pins: Arc<Pins>,
    pack: PackId,
}

impl Pins {
    pub(crate) fn pin(self: &Arc<Self>, pack: PackId) -> Pin {
        *self.counts.lock().entry(pack).or_default() += 1;
        Pin {
            pins: Arc::clone(self),
            pack,
        }
    }

    pub(crate) fn is_pinned(&self, pack: PackId) -> bool {
        self.counts.lock().contains_key(&pack)
    }
}

impl Pin {
    pub(crate) fn pack(&self) -> PackId {
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
