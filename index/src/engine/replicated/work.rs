//! A transaction in raw keys, but for its lane and its slots, and what can be merged with it.
//!
//! Two transactions can be sent as one if executing them together is the same as executing one
//! after the other: no change of either touches a key that the other compares or changes. Both may
//! compare the same key, and both may add to the same counter.

use std::collections::BTreeMap;

use super::keys::{KeySpace, ORDINARY};
use super::server::{LeaseId, RawCompare, RawOp, Test};
use crate::Error;
use crate::kv::{Compare, Counter, KeyRange, Lease, Limits, Op, Txn, Version};

/// Bytes of a key at most.
pub(super) const MAX_KEY: usize = 1024;

/// What a compare, a change or a look may take beside its keys and values.
const ENVELOPE: usize = 64;

/// A transaction without its lane and slots.
#[derive(Clone, Debug, Default)]
pub(super) struct Work {
    pub(super) compares: Vec<RawCompare>,
    pub(super) ops: Vec<RawOp>,
    /// What is added to counters, by their raw keys.
    pub(super) adds: BTreeMap<Vec<u8>, Counter>,
}

/// What `server` takes, less what lanes and slots may need: each addition compares its slot, and
/// names it a third time where the transaction looks if a compare fails.
pub(super) fn limits(server: &Limits, space: &KeySpace) -> Limits {
    let compares = server.compares / 4;
    let ops = (server.ops.saturating_sub(1)).min(server.compares.saturating_sub(compares + 1));
    let prefix = space.overhead();
    let each = 2 * MAX_KEY + 3 * (prefix + super::keys::SLOT_LEN + ENVELOPE);
    let reserved = (ops.saturating_add(compares).saturating_add(3)).saturating_mul(each);
    Limits {
        compares,
        ops,
        bytes: server.bytes.saturating_sub(reserved).max(server.bytes / 4),
    }
}

impl Work {
    /// Translates a transaction of the session that holds `lease`.
    pub(super) fn new(txn: &Txn, space: &KeySpace, lease: LeaseId) -> Result<Self, Error> {
        let mut work = Self::default();
        for compare in &txn.compares {
            work.compares.extend(raw_compare(compare, space));
        }
        for op in &txn.ops {
            work.push(op, space, lease)?;
        }
        Ok(work)
    }

    fn push(&mut self, op: &Op, space: &KeySpace, own: LeaseId) -> Result<(), Error> {
        let limit = MAX_KEY;
        if let Some(len) = op.key().map(<[u8]>::len).filter(|len| *len > limit) {
            return Err(Error::KeyTooLong { len, limit });
        }
        match op {
            Op::Put { key, value, lease } => {
                if lease.is_some_and(|lease| lease != Lease(own.cast_unsigned())) {
                    return Err(Error::ForeignLease);
                }
                self.ops.push(RawOp::Put {
                    key: space.key(key),
                    value: ordinary(value),
                    lease: if lease.is_some() { own } else { 0 },
                });
            }
            Op::Delete(key) => self.ops.push(RawOp::Delete {
                key: space.key(key),
                end: None,
            }),
            Op::DeleteRange { start, end } => {
                self.ops.extend(space.range(start, end).map(delete_range));
            }
            Op::Add { key, delta } => {
                self.adds.insert(space.key(key), *delta);
            }
            Op::DropCounter(key) => {
                let slots = KeySpace::slots(&space.key(key));
                self.ops.push(delete_range(slots));
            }
        }
        Ok(())
    }

    /// Whether executing both at once could be different from one after the other.
    pub(super) fn touches(&self, other: &Self) -> bool {
        self.changes_under(other) || other.changes_under(self)
    }

    /// Whether a change of `self` touches what `other` compares or changes.
    fn changes_under(&self, other: &Self) -> bool {
        let changes = || self.ops.iter().map(Span::of_op);
        let adds = || self.adds.keys().map(|key| Span::of_slots(key));
        let hit = |span: &Span<'_>| {
            let compared = other.compares.iter().map(Span::of_compare);
            let mut touched = compared.chain(other.ops.iter().map(Span::of_op));
            touched.any(|other| span.overlaps(&other))
        };
        let added = |span: &Span<'_>| {
            other
                .adds
                .keys()
                .any(|key| Span::of_slots(key).overlaps(span))
        };
        changes().any(|span| hit(&span) || added(&span)) || adds().any(|span| hit(&span))
    }

    /// Adds one that it does not touch.
    pub(super) fn merge(&mut self, other: &Self) {
        for compare in &other.compares {
            if !self.compares.contains(compare) {
                self.compares.push(compare.clone());
            }
        }
        self.ops.extend_from_slice(&other.ops);
        for (key, delta) in &other.adds {
            let sum = self.adds.entry(key.clone()).or_default();
            *sum = sum.plus(delta);
        }
    }

    /// Whether both together are not too large for the server.
    pub(super) fn fits_with(&self, other: &Self, server: &Limits) -> bool {
        let adds = self.adds.len() + other.adds.len() + 1;
        self.compares.len() + other.compares.len() + adds <= server.compares
            && self.ops.len() + other.ops.len() + adds <= server.ops
            && self.bytes() + other.bytes() <= server.bytes
    }

    /// Bytes that the request takes at most.
    fn bytes(&self) -> usize {
        let compares = self.compares.iter().map(|compare| {
            let end = compare.end.as_ref().map_or(0, Vec::len);
            compare.key.len() + end + ENVELOPE
        });
        let ops = self.ops.iter().map(|op| match op {
            RawOp::Put { key, value, .. } => key.len() + value.len() + ENVELOPE,
            RawOp::Delete { key, end } => key.len() + end.as_ref().map_or(0, Vec::len) + ENVELOPE,
        });
        let slot = |key: &Vec<u8>| key.len() + super::keys::SLOT_LEN + ENVELOPE;
        let adds = self.adds.keys().map(|key| 3 * slot(key) + Counter::MAX_LEN);
        // And the lane, three times.
        compares.chain(ops).chain(adds).sum::<usize>() + 3 * (MAX_KEY + ENVELOPE)
    }
}

/// The value of an ordinary key.
pub(super) fn ordinary(value: &[u8]) -> Vec<u8> {
    let mut raw = Vec::with_capacity(1 + value.len());
    raw.push(ORDINARY);
    raw.extend_from_slice(value);
    raw
}

fn delete_range((key, end): KeyRange) -> RawOp {
    RawOp::Delete {
        key,
        end: Some(end),
    }
}

/// Above every revision, and still a number that servers with signed ones can add to.
const NEVER: Version = Version::MAX >> 2;

/// `None` for a compare that always holds.
fn raw_compare(compare: &Compare, space: &KeySpace) -> Option<RawCompare> {
    let one = |key: &[u8], test| RawCompare {
        key: space.key(key),
        end: None,
        test,
    };
    let range = |start: &[u8], end: &[u8], test| {
        let (key, end) = space.range(start, end)?;
        let end = Some(end);
        Some(RawCompare { key, end, test })
    };
    match compare {
        Compare::Absent(key) => Some(one(key, Test::Absent)),
        Compare::Exists(key) => Some(one(key, Test::Exists)),
        // A key that does not exist has the revision 0, so nothing was written by that.
        Compare::VersionIs(key, 0) | Compare::CreatedAt(key, 0) => {
            Some(one(key, Test::WrittenBy(NEVER)))
        }
        Compare::VersionIs(key, version) => Some(one(key, Test::WrittenBy(*version.min(&NEVER)))),
        Compare::CreatedAt(key, version) => Some(one(key, Test::CreatedBy(*version.min(&NEVER)))),
        Compare::RangeEmpty { start, end } => range(start, end, Test::Absent),
        Compare::RangeNotNewer {
            start,
            end,
            version,
        } => range(start, end, Test::NotAfter(*version.min(&NEVER))),
    }
}

/// One key or a range of raw keys.
#[derive(Clone, Copy, Debug)]
struct Span<'a> {
    key: &'a [u8],
    end: End<'a>,
}

#[derive(Clone, Copy, Debug)]
enum End<'a> {
    /// The key alone.
    Key,
    /// All keys before this one.
    Before(&'a [u8]),
    /// All keys that begin with the key.
    Below,
}

impl<'a> Span<'a> {
    fn new(key: &'a [u8], end: Option<&'a Vec<u8>>) -> Self {
        let end = end.map_or(End::Key, |end| End::Before(end));
        Self { key, end }
    }

    fn of_compare(compare: &'a RawCompare) -> Self {
        Self::new(&compare.key, compare.end.as_ref())
    }

    fn of_op(op: &'a RawOp) -> Self {
        match op {
            RawOp::Put { key, .. } => Self::new(key, None),
            RawOp::Delete { key, end } => Self::new(key, end.as_ref()),
        }
    }

    fn of_slots(key: &'a [u8]) -> Self {
        let end = End::Below;
        Self { key, end }
    }

    fn is_before(&self, other: &Self) -> bool {
        match self.end {
            End::Key => self.key < other.key,
            End::Before(end) => end <= other.key,
            End::Below => self.key < other.key && !other.key.starts_with(self.key),
        }
    }

    fn overlaps(&self, other: &Self) -> bool {
        !self.is_before(other) && !other.is_before(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(build: impl FnOnce(&mut Txn)) -> Work {
        let mut txn = Txn::new();
        build(&mut txn);
        Work::new(&txn, &KeySpace::new(b"v"), 9).unwrap()
    }

    fn put(key: &[u8]) -> Work {
        work(|txn| {
            txn.put(key.to_vec(), vec![]);
        })
    }

    fn compares(compare: Compare) -> Work {
        work(|txn| {
            txn.compare(compare);
        })
    }

    fn adds(key: &[u8]) -> Work {
        work(|txn| {
            txn.add(key.to_vec(), Counter::of(1));
        })
    }

    #[test]
    fn transactions_that_touch_each_other_are_told_apart() {
        let range = work(|txn| {
            txn.delete_range(b"a".to_vec(), b"c".to_vec());
        });
        let not_newer = compares(Compare::RangeNotNewer {
            start: b"p1".to_vec(),
            end: b"p2".to_vec(),
            version: 3,
        });
        let dropped = work(|txn| {
            txn.drop_counter(b"p1".to_vec());
        });
        let exists = compares(Compare::Exists(b"b".to_vec()));
        let touching = [
            (&put(b"b"), &put(b"b")),
            (&put(b"b"), &exists),
            (&range, &exists),
            (&range, &put(b"a")),
            (&adds(b"p1"), &not_newer),
            (&adds(b"p1"), &dropped),
        ];
        for (one, other) in touching {
            assert!(
                one.touches(other) && other.touches(one),
                "{one:?} {other:?}"
            );
        }
        let apart = [
            (&put(b"b"), &put(b"b\0")),
            (&exists, &exists),
            (&range, &put(b"c")),
            (&adds(b"p1"), &adds(b"p1")),
            (&adds(b"p2"), &not_newer),
            (&adds(b"p"), &put(b"o")),
        ];
        for (one, other) in apart {
            assert!(
                !one.touches(other) && !other.touches(one),
                "{one:?} {other:?}"
            );
        }
    }

    #[test]
    fn additions_to_one_counter_are_summed() {
        let mut sum = adds(b"p");
        sum.merge(&adds(b"p"));
        let counters: Vec<_> = sum.adds.values().copied().collect();
        assert_eq!(counters, [Counter::of(2)]);
    }

    #[test]
    fn every_transaction_within_the_limits_fits_the_server() {
        let server = Limits {
            compares: 128,
            ops: 128,
            bytes: 3 << 19,
        };
        let space = KeySpace::new(&[b'v'; 64]);
        let limits = limits(&server, &space);
        assert!(limits.ops > 64 && limits.compares >= 32 && limits.bytes > 1 << 20);
        let mut txn = Txn::new();
        for number in 0..limits.ops {
            let mut key = vec![b'k'; MAX_KEY];
            key[..8].copy_from_slice(&(number as u64).to_be_bytes());
            if txn.compares.len() < limits.compares {
                txn.compare(Compare::Absent(key.clone()));
            }
            txn.add(key, Counter::of(1));
        }
        txn.check(&limits).unwrap();
        let work = Work::new(&txn, &space, 1).unwrap();
        assert!(work.fits_with(&Work::default(), &server));
    }
}
