//! The raw keys of one volume.
//!
//! ```text
//! prefix k key                       an ordinary key; its value: 0, then the bytes
//! prefix k key session:8 lane:1      a slot of the counter `key`; its value: 1, then the counter
//! prefix e s lease:8                 a session, under its lease; its value: nothing
//! prefix e l lease:8 lane:1          a lane of that session, under the same lease; its value: a nonce
//! prefix e i                         an import that is not complete; its value: a nonce
//! ```
//! Integers are big-endian. Every logical key is below `k`, so that none can reach what the engine
//! keeps for itself below `e`. The prefix of one volume must not begin with that of another.
//!
//! Slots follow the key of their counter, so the order of raw keys is that of logical ones as long
//! as no key begins with the key of a counter, which the contract forbids. The ends of a range that
//! is only read may begin with one: [`KeySpace::reading`] widens the range, and
//! [`Gather`](super::slots::Gather) drops what does not belong to it.

use super::server::{LeaseId, Revision};
use crate::kv::{KeyRange, prefix_end};

const LOGICAL: u8 = b'k';
const ENGINE: u8 = b'e';
const SESSION: u8 = b's';
const LANE: u8 = b'l';
const IMPORT: u8 = b'i';

/// The first byte of the value of an ordinary key.
pub(super) const ORDINARY: u8 = 0;
/// The first byte of the value of a slot.
pub(super) const SLOT: u8 = 1;

/// Bytes that a slot adds to the key of its counter.
pub(super) const SLOT_LEN: usize = 9;

/// The only writer of a slot: a lane of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotOwner {
    /// The number of the session.
    pub(super) session: Revision,
    /// The number of the lane.
    pub(super) lane: u8,
}

/// The keys below one prefix.
#[derive(Clone, Debug)]
pub(super) struct KeySpace {
    prefix: Vec<u8>,
}

impl KeySpace {
    pub(super) fn new(prefix: &[u8]) -> Self {
        Self {
            prefix: prefix.to_vec(),
        }
    }

    fn join(&self, parts: &[&[u8]]) -> Vec<u8> {
        let mut raw = self.prefix.clone();
        for part in parts {
            raw.extend_from_slice(part);
        }
        raw
    }

    /// Bytes that come before a logical key.
    pub(super) fn overhead(&self) -> usize {
        self.prefix.len() + 1
    }

    /// A logical key.
    pub(super) fn key(&self, key: &[u8]) -> Vec<u8> {
        self.join(&[&[LOGICAL], key])
    }

    /// The logical key of a raw one, with the suffix if it is a slot.
    pub(super) fn logical<'a>(&self, raw: &'a [u8]) -> Option<&'a [u8]> {
        match raw.strip_prefix(self.prefix.as_slice()) {
            Some([LOGICAL, key @ ..]) => Some(key),
            _ => None,
        }
    }

    /// A range of logical keys, for compares and deletions. `None` if it is empty.
    pub(super) fn range(&self, start: &[u8], end: &[u8]) -> Option<KeyRange> {
        (start < end).then(|| (self.key(start), self.key(end)))
    }

    /// A range with every slot of every counter in it, for looks. `None` if it is empty.
    pub(super) fn reading(&self, start: &[u8], end: &[u8]) -> Option<KeyRange> {
        let (from, mut to) = self.range(start, end)?;
        // A counter below `end` has slots above it only if `end` begins with its key.
        let inside = (1..end.len()).map(|len| &end[..len]);
        if let Some(counter) = inside.into_iter().find(|counter| *counter >= start) {
            let mut last = self.key(counter);
            last.resize(last.len() + end.len() + SLOT_LEN, u8::MAX);
            to = to.max(last);
        }
        Some((from, to))
    }

    /// All logical keys.
    pub(super) fn everything(&self) -> KeyRange {
        (self.key(&[]), self.join(&[&[LOGICAL + 1]]))
    }

    /// The whole volume, with what the engine keeps for itself.
    pub(super) fn volume(&self) -> KeyRange {
        let start = self.prefix.clone();
        let end = prefix_end(&start);
        (start, end)
    }

    /// The slot that `owner` has of a counter with this raw key.
    pub(super) fn slot(counter: &[u8], owner: SlotOwner) -> Vec<u8> {
        let mut raw = counter.to_vec();
        raw.extend_from_slice(&owner.session.to_be_bytes());
        raw.push(owner.lane);
        raw
    }

    /// All slots of a counter with this raw key.
    pub(super) fn slots(counter: &[u8]) -> KeyRange {
        (counter.to_vec(), prefix_end(counter))
    }

    /// Takes the key of a slot apart. Any key that is long enough looks like one.
    pub(super) fn split_slot(key: &[u8]) -> Option<(&[u8], SlotOwner)> {
        let at = key.len().checked_sub(SLOT_LEN).filter(|at| *at > 0)?;
        let (counter, suffix) = key.split_at(at);
        let (session, lane) = suffix.split_at(SLOT_LEN - 1);
        let owner = SlotOwner {
            session: Revision::from_be_bytes(session.try_into().ok()?),
            lane: *lane.first()?,
        };
        Some((counter, owner))
    }

    /// A session.
    pub(super) fn session(&self, lease: LeaseId) -> Vec<u8> {
        self.join(&[&[ENGINE, SESSION], &lease.to_be_bytes()])
    }

    /// All sessions.
    pub(super) fn sessions(&self) -> KeyRange {
        let start = self.join(&[&[ENGINE, SESSION]]);
        let end = prefix_end(&start);
        (start, end)
    }

    /// A lane of a session.
    pub(super) fn lane(&self, lease: LeaseId, lane: u8) -> Vec<u8> {
        self.join(&[&[ENGINE, LANE], &lease.to_be_bytes(), &[lane]])
    }

    /// An import that is not complete.
    pub(super) fn import(&self) -> Vec<u8> {
        self.join(&[&[ENGINE, IMPORT]])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: SlotOwner = SlotOwner {
        session: 7,
        lane: 3,
    };

    #[test]
    fn logical_keys_and_those_of_the_engine_do_not_meet() {
        let space = KeySpace::new(b"/v/");
        let raw = space.key(&[0xfe, 0]);
        assert_eq!(space.logical(&raw), Some(&[0xfe, 0][..]));
        for private in [space.session(1), space.lane(-1, 15), space.import()] {
            assert_eq!(space.logical(&private), None);
            let (start, end) = space.everything();
            assert!(!(start..end).contains(&private));
            let (start, end) = space.volume();
            assert!((start..end).contains(&private));
        }
    }

    #[test]
    fn a_slot_is_taken_apart_as_it_was_made() {
        let slot = KeySpace::slot(b"p1", OWNER);
        assert_eq!(KeySpace::split_slot(&slot), Some((&b"p1"[..], OWNER)));
        assert_eq!(KeySpace::split_slot(&slot[2..]), None, "no counter");
    }

    #[test]
    fn a_range_that_is_read_has_the_slots_of_its_counters() {
        let space = KeySpace::new(b"/v/");
        let cases: [(&[u8], &[u8], &[u8]); 4] = [
            (b"c", b"c\0", b"c"),
            (b"", &[0xff; 20], &[0xff; 3]),
            (b"c", b"d", b"cc"),
            (b"a", b"cab", b"ca"),
        ];
        for (start, end, counter) in cases {
            let (from, to) = space.reading(start, end).unwrap();
            for session in [0, 7, u64::MAX] {
                let owner = SlotOwner { session, lane: 255 };
                let slot = KeySpace::slot(&space.key(counter), owner);
                assert!(from <= slot && slot < to, "{start:?} {end:?}");
            }
        }
        assert_eq!(space.reading(b"d", b"c"), None);
        let prefix = space.reading(b"d1", &prefix_end(b"d1"));
        assert_eq!(prefix, space.range(b"d1", b"d2"), "a prefix needs no more");
    }
}
