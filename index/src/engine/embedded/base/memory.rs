//! A base in memory: for read-only opens, and if sled has no space to be rebuilt.
//!
//! Keys that arrive in order, as from a snapshot, are packed into blocks as in sled: a map with a
//! node, a key and a value for each would take three times as much. Later changes are in a map
//! above them.

use std::collections::BTreeMap;
use std::ops::Bound;

use parking_lot::RwLock;

use super::Page;
use super::block::{self, Entry, Lookup, Payload};
use crate::engine::embedded::memtable::Slot;

/// Changes in a page at most.
const PAGE: usize = 64;
/// Bytes of a block, about. A look-up of a key reads half of one.
const BLOCK: usize = 2048;

/// A base in memory.
#[derive(Debug, Default)]
pub(crate) struct MemoryBase {
    state: RwLock<State>,
}

#[derive(Debug, Default)]
struct State {
    packed: Packed,
    /// Changes above the packed keys, removals included.
    changes: BTreeMap<Box<[u8]>, Slot>,
}

/// Live keys that arrived in order.
#[derive(Debug, Default)]
struct Packed {
    blocks: Vec<Block>,
    /// The block that is being filled, and its size.
    open: Vec<Entry>,
    size: usize,
}

#[derive(Debug)]
struct Block {
    first: Box<[u8]>,
    bytes: Box<[u8]>,
}

impl MemoryBase {
    pub(super) fn get(&self, key: &[u8]) -> Option<Slot> {
        let state = self.state.read();
        match state.changes.get(key) {
            Some(slot) => slot.value.is_some().then(|| slot.clone()),
            None => state.packed.get(key),
        }
    }

    pub(super) fn page(&self, from: &[u8], end: &[u8]) -> Page {
        if from >= end {
            return (Vec::new(), None);
        }
        let state = self.state.read();
        let (packed, block_end) = state.packed.block(from);
        let mut upto = match block_end {
            Some(block_end) if block_end < end => block_end,
            _ => end,
        };
        let bounds = (Bound::Included(from), Bound::Excluded(upto));
        let changes = state.changes.range::<[u8], _>(bounds);
        let mut changes: Vec<(&[u8], &Slot)> = changes
            .map(|(key, slot)| (&**key, slot))
            .take(PAGE + 1)
            .collect();
        if let Some((key, _)) = changes.get(PAGE) {
            upto = key;
            changes.truncate(PAGE);
        }
        let next = (upto < end).then(|| upto.to_vec());
        let packed = packed.into_iter();
        let mut packed = packed
            .skip_while(|entry| entry.key.as_slice() < from)
            .take_while(|entry| entry.key.as_slice() < upto)
            .peekable();
        let mut entries = Vec::new();
        for (key, slot) in changes {
            while let Some(entry) = packed.next_if(|entry| entry.key.as_slice() < key) {
                entries.push(entry);
            }
            packed.next_if(|entry| entry.key == key);
            entries.extend(entry(key, slot));
        }
        entries.extend(packed);
        (entries, next)
    }

    pub(super) fn merge<'a>(&self, changes: impl Iterator<Item = (&'a [u8], &'a Slot)>) {
        let mut state = self.state.write();
        let state = &mut *state;
        for (key, slot) in changes {
            let changed = state.changes.get(key).map(|slot| slot.version);
            if changed.is_none() && state.packed.is_before(key) {
                if let Some(entry) = entry(key, slot) {
                    state.packed.push(entry);
                }
                continue;
            }
            let packed = state.packed.get(key).map(|slot| slot.version);
            if changed.or(packed).is_some_and(|known| known > slot.version) {
                continue;
            }
            if slot.value.is_none() && packed.is_none() {
                state.changes.remove(key);
            } else {
                state.changes.insert(key.into(), slot.clone());
            }
        }
    }
}

/// A live key.
fn entry(key: &[u8], slot: &Slot) -> Option<Entry> {
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
}

/// The state that an entry stands for, which has its value.
fn slot(entry: &Entry) -> Option<Slot> {
    match &entry.payload {
        Payload::Inline(value) => Some(entry.slot(value.clone())),
        Payload::Large { .. } => None,
    }
}

impl Packed {
    /// Whether a key comes after all packed keys.
    fn is_before(&self, key: &[u8]) -> bool {
        self.open
            .last()
            .is_none_or(|last| last.key.as_slice() < key)
    }

    /// Adds a key after all others.
    fn push(&mut self, entry: Entry) {
        if self.size >= BLOCK {
            let full = std::mem::take(&mut self.open);
            self.size = 0;
            if let Some(first) = full.first() {
                let bytes = block::encode(&first.key, &entry.key, &full);
                self.blocks.push(Block {
                    first: first.key.as_slice().into(),
                    bytes: bytes.into(),
                });
            }
        }
        self.size += entry.size();
        self.open.push(entry);
    }

    /// The block that would have a key.
    fn place(&self, key: &[u8]) -> Option<&Block> {
        self.blocks.get(self.after(key).checked_sub(1)?)
    }

    /// The number of the first block that begins after a key.
    fn after(&self, key: &[u8]) -> usize {
        self.blocks.partition_point(|block| *block.first <= *key)
    }

    fn is_open(&self, key: &[u8]) -> bool {
        self.open
            .first()
            .is_some_and(|first| first.key.as_slice() <= key)
    }

    fn get(&self, key: &[u8]) -> Option<Slot> {
        if self.is_open(key) {
            let at = self.open.binary_search_by(|entry| (*entry.key).cmp(key));
            return at.ok().and_then(|at| slot(&self.open[at]));
        }
        let Block { first, bytes } = self.place(key)?;
        match block::find(first, bytes, key) {
            Lookup::Found(entry) => slot(&entry),
            Lookup::Absent | Lookup::Bad => None,
        }
    }

    /// The entries of the block that covers a key, and where the next block begins.
    fn block(&self, key: &[u8]) -> (Vec<Entry>, Option<&[u8]>) {
        if self.is_open(key) {
            return (self.open.clone(), None);
        }
        let open = self.open.first().map(|entry| entry.key.as_slice());
        let next = self.blocks.get(self.after(key));
        let next = next.map(|block| &*block.first).or(open);
        let entries = self
            .place(key)
            .and_then(|block| block::decode(&block.first, &block.bytes))
            .map(|block| block.entries);
        (entries.unwrap_or_default(), next)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn value(version: u64, bytes: &[u8]) -> Slot {
        Slot {
            version,
            created: version,
            value: Some(Arc::from(bytes)),
            leased: false,
        }
    }

    fn gone(version: u64) -> Slot {
        Slot {
            value: None,
            ..value(version, b"")
        }
    }

    /// All keys of a range, page by page.
    fn range(memory: &MemoryBase, from: &[u8], end: &[u8]) -> Vec<(Vec<u8>, u64)> {
        let mut found = Vec::new();
        let mut next = Some(from.to_vec());
        while let Some(from) = next {
            let (entries, more) = memory.page(&from, end);
            assert!(more.as_ref().is_none_or(|more| *more > from), "no progress");
            found.extend(entries.into_iter().map(|entry| (entry.key, entry.version)));
            next = more;
        }
        found
    }

    #[test]
    fn it_shows_what_a_map_would() {
        // Numbers that look random.
        let mut state = 9u64;
        let mut roll = move |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 20) % below
        };
        let key = |number: u64| format!("key {number:05}").into_bytes();
        for sizes in [[0, 3], [2000, 0], [2000, 1], [500, 300]] {
            let memory = MemoryBase::default();
            let mut model: BTreeMap<Vec<u8>, Slot> = BTreeMap::new();
            // In order, in portions, as from a snapshot; then any key.
            let [ordered, rounds] = sizes;
            let ordered: Vec<(Vec<u8>, Slot)> = (0..ordered)
                .map(|number| (key(2 * number), value(5, &vec![7; roll(300) as usize])))
                .collect();
            for portion in ordered.chunks(128) {
                memory.merge(portion.iter().map(|(key, slot)| (key.as_slice(), slot)));
                model.extend(portion.iter().cloned());
            }
            for round in 0..rounds {
                let mut portion = BTreeMap::new();
                for _ in 0..roll(200) + 1 {
                    // As from a journal; the first are older than the packed keys.
                    let version = 3 + 4 * round + roll(4);
                    let slot = match roll(3) {
                        0 => gone(version),
                        _ => value(version, &[1; 9]),
                    };
                    portion.insert(key(roll(4200)), slot);
                }
                memory.merge(portion.iter().map(|(key, slot)| (key.as_slice(), slot)));
                for (key, slot) in portion {
                    match model.get(&key) {
                        Some(old) if old.version > slot.version => {}
                        _ if slot.value.is_none() => drop(model.remove(&key)),
                        _ => drop(model.insert(key, slot)),
                    }
                }
            }
            for number in 0..4300 {
                let key = key(number);
                assert_eq!(memory.get(&key), model.get(&key).cloned(), "{number}");
            }
            for _ in 0..50 {
                let (from, end) = (key(roll(4300)), key(roll(4300)));
                let expected = model.iter().filter(|(key, _)| **key >= from && **key < end);
                let expected: Vec<_> = expected
                    .map(|(key, slot)| (key.clone(), slot.version))
                    .collect();
                assert_eq!(range(&memory, &from, &end), expected);
            }
            let all: Vec<Vec<u8>> = model.keys().cloned().collect();
            let found = range(&memory, b"", &[0xff]);
            let found: Vec<Vec<u8>> = found.into_iter().map(|(key, _)| key).collect();
            assert_eq!(found, all);
        }
    }
}
