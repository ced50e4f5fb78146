//! A view in memory: for read-only opens, and for when sled has no space to be rebuilt.

use std::collections::BTreeMap;
use std::ops::Bound;

use parking_lot::RwLock;

use super::Page;
use super::block::{Entry, Payload};
use crate::engine::memtable::Slot;

/// Entries of a page.
const PAGE: usize = 64;

/// A view in memory.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    map: RwLock<BTreeMap<Box<[u8]>, Slot>>,
}

impl Memory {
    pub(super) fn get(&self, key: &[u8]) -> Option<Slot> {
        self.map.read().get(key).cloned()
    }

    pub(super) fn page(&self, from: &[u8], end: &[u8]) -> Page {
        if from >= end {
            return (Vec::new(), None);
        }
        let map = self.map.read();
        let bounds = (Bound::Included(from), Bound::Excluded(end));
        let mut range = map
            .range::<[u8], _>(bounds)
            .map(|(key, slot)| (&**key, slot));
        let entry = |(key, slot): (&[u8], &Slot)| {
            let Slot {
                version,
                created,
                leased,
                ref value,
            } = *slot;
            let payload = Payload::Inline(value.clone()?);
            Some(Entry {
                key: key.to_vec(),
                version,
                created,
                leased,
                payload,
            })
        };
        let entries = range.by_ref().take(PAGE).filter_map(entry).collect();
        (entries, range.next().map(|(key, _)| key.to_vec()))
    }

    pub(super) fn merge<'a>(&self, changes: impl Iterator<Item = (&'a [u8], &'a Slot)>) {
        let mut map = self.map.write();
        for (key, slot) in changes {
            match map.get(key) {
                Some(old) if old.version > slot.version => {}
                _ if slot.value.is_none() => {
                    map.remove(key);
                }
                _ => {
                    map.insert(key.into(), slot.clone());
                }
            }
        }
    }
}
