//! The view: the state of the index at a checkpoint, where single keys are found quickly.
//!
//! Never the truth: whatever is wrong with it, it is thrown away and made again from snapshot
//! and journal. [`block`] has the bytes, [`disk`] keeps them in sled, [`memory`] replaces sled
//! where the disk cannot be written.

pub(crate) mod block;
pub(crate) mod disk;
pub(crate) mod memory;

use std::sync::Arc;

use super::memtable::Slot;
use block::{Entry, Payload};
use disk::Disk;
use memory::Memory;

/// The view cannot be used any more, and why.
#[derive(Clone, Debug)]
pub(crate) struct Fault(pub(crate) String);

/// Entries in order, and where the next page begins if there is one.
pub(crate) type Page = (Vec<Entry>, Option<Vec<u8>>);

/// Either kind of view.
#[derive(Debug)]
pub(crate) enum View {
    /// In sled.
    Disk(Disk),
    /// In memory.
    Memory(Memory),
}

impl View {
    /// One key.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Slot>, Fault> {
        match self {
            Self::Disk(disk) => disk.get(key),
            Self::Memory(memory) => Ok(memory.get(key)),
        }
    }

    /// Some entries from `from` (included) to `end` (excluded).
    pub(crate) fn page(&self, from: &[u8], end: &[u8]) -> Result<Page, Fault> {
        match self {
            Self::Disk(disk) => disk.page(from, end),
            Self::Memory(memory) => Ok(memory.page(from, end)),
        }
    }

    /// The value of an entry.
    pub(crate) fn value(&self, entry: &Entry) -> Result<Arc<[u8]>, Fault> {
        match (&entry.payload, self) {
            (Payload::Inline(value), _) => Ok(value.clone()),
            (Payload::Large { .. }, Self::Disk(disk)) => disk.large(entry),
            (Payload::Large { .. }, Self::Memory(_)) => Err(Fault("large value in memory".into())),
        }
    }

    /// Applies changes, given in key order; for every key the highest version wins.
    pub(crate) fn merge<'a>(
        &self,
        changes: impl Iterator<Item = (&'a [u8], &'a Slot)>,
    ) -> Result<(), Fault> {
        match self {
            Self::Disk(disk) => disk.merge(changes),
            Self::Memory(memory) => {
                memory.merge(changes);
                Ok(())
            }
        }
    }
}
