//! The newest changes, in memory, above the base.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use crate::kv::Change;
use crate::kv::{Version, Versioned};

/// Overhead of a map node beyond the bytes of key and value, about.
const OVERHEAD: usize = 112;

/// The state of a key at some version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    /// The commit that wrote it.
    pub(crate) version: Version,
    /// The commit that created the key.
    pub(crate) created: Version,
    /// The value; `None` when the key was removed.
    pub(crate) value: Option<Arc<[u8]>>,
    /// Whether the key is removed with the lease.
    pub(crate) leased: bool,
}

impl Slot {
    /// The value in the form of the contract.
    pub(crate) fn live(&self) -> Option<Versioned> {
        let value = self.value.clone()?;
        Some(Versioned {
            value,
            version: self.version,
            created: self.created,
        })
    }

    fn bytes(&self) -> usize {
        self.value.as_ref().map_or(0, |value| value.len())
    }
}

/// A sorted table of the newest state of some keys.
#[derive(Debug, Default)]
pub(crate) struct Memtable {
    map: BTreeMap<Box<[u8]>, Slot>,
    bytes: usize,
}

impl Memtable {
    pub(crate) fn get(&self, key: &[u8]) -> Option<&Slot> {
        self.map.get(key)
    }

    /// The entries from `start` (included) to `end` (excluded), tombstones too.
    pub(crate) fn range<'a>(
        &'a self,
        start: &[u8],
        end: &[u8],
    ) -> impl Iterator<Item = (&'a [u8], &'a Slot)> + use<'a> {
        let bounds = (Bound::Included(start), Bound::Excluded(end));
        let range = (start < end).then(|| self.map.range::<[u8], _>(bounds));
        range
            .into_iter()
            .flatten()
            .map(|(key, slot)| (&**key, slot))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &Slot)> {
        self.map.iter().map(|(key, slot)| (&**key, slot))
    }

    pub(crate) fn insert(&mut self, key: &[u8], slot: Slot) {
        self.bytes += slot.bytes();
        if let Some(old) = self.map.get_mut(key) {
            self.bytes -= old.bytes();
            *old = slot;
        } else {
            self.bytes += key.len() + OVERHEAD;
            self.map.insert(key.into(), slot);
        }
    }

    /// Applies one resolved change of a commit.
    pub(crate) fn apply(&mut self, version: Version, change: &Change) {
        let (created, value) = match &change.value {
            Some(value) => (value.created, Some(value.value.clone())),
            None => (version, None),
        };
        self.insert(
            &change.key,
            Slot {
                version,
                created,
                value,
                leased: change.leased,
            },
        );
    }

    /// Bytes of memory held, about.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.map.is_empty()
    }
}

/// Notes whether a key is under the lease.
pub(crate) fn track_lease(leased: &mut BTreeSet<Vec<u8>>, change: &Change) {
    if change.leased {
        leased.insert(change.key.clone());
    } else {
        leased.remove(&change.key);
    }
}
