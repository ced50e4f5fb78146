//! The base: the state of the index at a checkpoint, for quick look-ups of single keys.
//!
//! It is never the truth: a base that fails is discarded and rebuilt from snapshot and journal.
//! [`block`] has the bytes, [`sled`](self::sled) keeps them in sled, and [`memory`] replaces sled
//! where the disk cannot be written.

pub(crate) mod block;
pub(crate) mod memory;
pub(crate) mod sled;

use std::sync::Arc;

use self::sled::SledBase;
use super::memtable::Slot;
use block::{Entry, Payload};
use memory::MemoryBase;

/// Why the base can no longer be used.
#[derive(Clone, Debug)]
pub(crate) struct BaseFault(pub(crate) String);

/// Entries in order, and where the next page begins if there is one.
pub(crate) type Page = (Vec<Entry>, Option<Vec<u8>>);

/// Either kind of base.
#[derive(Debug)]
pub(crate) enum Base {
    /// In sled.
    Sled(SledBase),
    /// In memory.
    Memory(MemoryBase),
}

impl Base {
    /// One key.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Slot>, BaseFault> {
        match self {
            Self::Sled(disk) => disk.get(key),
            Self::Memory(memory) => Ok(memory.get(key)),
        }
    }

    /// Some entries from `from` (included) to `end` (excluded).
    pub(crate) fn page(&self, from: &[u8], end: &[u8]) -> Result<Page, BaseFault> {
        match self {
            Self::Sled(disk) => disk.page(from, end),
            Self::Memory(memory) => Ok(memory.page(from, end)),
        }
    }

    /// The value of an entry.
    pub(crate) fn value(&self, entry: &Entry) -> Result<Arc<[u8]>, BaseFault> {
        match (&entry.payload, self) {
            (Payload::Inline(value), _) => Ok(value.clone()),
            (Payload::Large { .. }, Self::Sled(disk)) => disk.large(entry),
            (Payload::Large { .. }, Self::Memory(_)) => {
                Err(BaseFault("large value in memory".into()))
            }
        }
    }

    /// Applies changes, given in key order; for every key the highest version wins.
    pub(crate) fn merge<'a>(
        &self,
        changes: impl Iterator<Item = (&'a [u8], &'a Slot)>,
    ) -> Result<(), BaseFault> {
        match self {
            Self::Sled(disk) => disk.merge(changes),
            Self::Memory(memory) => {
                memory.merge(changes);
                Ok(())
            }
        }
    }
}
