//! Values of the base that were read recently, and keys that it does not have.
//!
//! Only keys that neither table above the base has are cached, and before the frozen table goes its
//! keys are evicted: so nothing here is ever out of date.

use std::collections::HashMap;

use parking_lot::Mutex;

use super::memtable::Slot;

const SHARDS: usize = 16;
/// Overhead of an entry beyond its bytes, about.
const OVERHEAD: usize = 128;

type Map = HashMap<Box<[u8]>, Option<Slot>>;

/// Two generations: when the young one is full it becomes the old one, and the old one is dropped.
#[derive(Debug, Default)]
struct Shard {
    young: Map,
    old: Map,
    bytes: usize,
}

impl Shard {
    fn age(&mut self) {
        self.old = std::mem::take(&mut self.young);
        self.bytes = 0;
    }
}

/// The cache.
#[derive(Debug)]
pub(crate) struct ValueCache {
    shards: [Mutex<Shard>; SHARDS],
    /// Bytes of one generation of one shard.
    generation: usize,
}

impl ValueCache {
    pub(crate) fn new(bytes: usize) -> Self {
        Self {
            shards: Default::default(),
            generation: bytes / (2 * SHARDS),
        }
    }

    fn shard(&self, key: &[u8]) -> &Mutex<Shard> {
        let hash = twox_hash::XxHash3_64::oneshot(key);
        &self.shards[hash as usize % SHARDS]
    }

    /// The cached state of a key, if any.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Option<Slot>> {
        let mut shard = self.shard(key).lock();
        if let Some(known) = shard.young.get(key) {
            return Some(known.clone());
        }
        let (key, known) = shard.old.remove_entry(key)?;
        self.insert(&mut shard, key, known.clone());
        Some(known)
    }

    /// Caches the base's answer about a key.
    pub(crate) fn put(&self, key: &[u8], known: Option<Slot>) {
        self.insert(&mut self.shard(key).lock(), key.into(), known);
    }

    fn insert(&self, shard: &mut Shard, key: Box<[u8]>, known: Option<Slot>) {
        let value = known
            .as_ref()
            .and_then(|slot| slot.value.as_ref())
            .map_or(0, |v| v.len());
        let size = key.len() + value + OVERHEAD;
        if size > self.generation / 4 {
            return;
        }
        if shard.bytes + size > self.generation {
            shard.age();
        }
        shard.bytes += size;
        shard.young.insert(key, known);
    }

    /// Evicts entries that were not used since the last time, or since there was no more room.
    pub(crate) fn age(&self) {
        for shard in &self.shards {
            shard.lock().age();
        }
    }

    /// Forgets a key.
    pub(crate) fn forget(&self, key: &[u8]) {
        let mut shard = self.shard(key).lock();
        shard.young.remove(key);
        shard.old.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_between_two_rests_stays() {
        let cache = ValueCache::new(1 << 20);
        cache.put(b"asked for", None);
        cache.put(b"left alone", None);
        cache.age();
        assert_eq!(cache.get(b"asked for"), Some(None));
        cache.age();
        assert_eq!(cache.get(b"asked for"), Some(None));
        assert_eq!(cache.get(b"left alone"), None);
    }
}
