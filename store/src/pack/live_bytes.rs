//! Live bytes of each pack.

use std::collections::BTreeMap;

use super::{PackBytes, PackId};
use crate::primitives::Mutex;
use crate::primitives::atomic::{AtomicBool, AtomicU64, Ordering};

/// Live bytes of packs, as the index counts them.
#[derive(Debug)]
pub(super) struct LiveBytes {
    /// For each pack that has any or waits to be deleted.
    bytes: Mutex<BTreeMap<PackId, u64>>,
    /// Bytes have died since gc last asked.
    shrunk: AtomicBool,
    /// Bytes that have died in this session.
    died: AtomicU64,
}

impl LiveBytes {
    pub(super) fn new(bytes: BTreeMap<PackId, u64>) -> Self {
        Self {
            bytes: Mutex::new(bytes),
            shrunk: AtomicBool::new(true),
            died: AtomicU64::new(0),
        }
    }

    /// Follows a commit that changed live bytes.
    pub(super) fn account(&self, changes: &BTreeMap<PackId, i64>) {
        let mut live = self.bytes.lock();
        for (&pack, &delta) in changes {
            let bytes = live.entry(pack).or_default();
            *bytes = bytes.saturating_add_signed(delta);
            if delta < 0 {
                self.died.fetch_add(delta.unsigned_abs(), Ordering::Relaxed);
                self.note_shrunk();
            }
        }
    }

    /// Registers a pack without live bytes.
    pub(super) fn register(&self, pack: PackId) {
        self.bytes.lock().entry(pack).or_insert(0);
    }

    /// Takes over what the index counts: of packs that it knows, and of registered ones that are
    /// `own`, which count nothing yet.
    pub(super) fn set(&self, counted: &[PackBytes], own: impl Fn(PackId) -> bool) {
        let mut live = self.bytes.lock();
        live.retain(|&pack, bytes| {
            *bytes = 0;
            own(pack)
        });
        live.extend(counted.iter().map(|on| (on.pack, on.bytes)));
        self.note_shrunk();
    }

    pub(super) fn forget(&self, pack: PackId) {
        self.bytes.lock().remove(&pack);
    }

    pub(super) fn all(&self) -> BTreeMap<PackId, u64> {
        self.bytes.lock().clone()
    }

    /// Registered packs without live bytes that are `quiet`. No commit can change their bytes
    /// between the two questions.
    pub(super) fn dead(&self, quiet: impl Fn(PackId) -> bool) -> Vec<PackId> {
        let live = self.bytes.lock();
        live.iter()
            .filter(|&(&pack, &bytes)| bytes == 0 && quiet(pack))
            .map(|(&pack, _)| pack)
            .collect()
    }

    pub(super) fn is_dead(&self, pack: PackId) -> bool {
        self.bytes.lock().get(&pack).is_none_or(|&bytes| bytes == 0)
    }

    pub(super) fn note_shrunk(&self) {
        self.shrunk.store(true, Ordering::Relaxed);
    }

    pub(super) fn take_shrunk(&self) -> bool {
        self.shrunk.swap(false, Ordering::Relaxed)
    }

    pub(super) fn died(&self) -> u64 {
        self.died.load(Ordering::Relaxed)
    }
}
