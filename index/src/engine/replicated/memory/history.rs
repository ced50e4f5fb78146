//! Keys at every revision, and transactions on them, as etcd executes them.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use super::Changed;
use crate::engine::replicated::server::{
    LeaseId, RawAnswer, RawCompare, RawOp, RawPage, RawPair, RawRange, RawTxn, Revision,
    ServerError, Test,
};
use crate::kv::Limits;

/// What a key was from a revision on; without a pair it was gone.
#[derive(Debug)]
struct Stamp {
    revision: Revision,
    pair: Option<RawPair>,
}

#[derive(Debug)]
struct Lease {
    ttl: Duration,
    until: Duration,
}

/// All keys, with their history.
#[derive(Debug)]
pub(super) struct History {
    keys: BTreeMap<Vec<u8>, Vec<Stamp>>,
    pub(super) revision: Revision,
    compacted: Revision,
    leases: BTreeMap<LeaseId, Lease>,
    last_lease: LeaseId,
    now: Duration,
}

impl Default for History {
    fn default() -> Self {
        Self {
            keys: BTreeMap::new(),
            // As etcd begins.
            revision: 1,
            compacted: 0,
            leases: BTreeMap::new(),
            last_lease: 1000,
            now: Duration::ZERO,
        }
    }
}

/// Refuses what etcd refuses: too much, and keys that are changed twice.
pub(super) fn check(txn: &RawTxn, limits: &Limits) -> Result<(), ServerError> {
    let refused = |what: &str| Err(ServerError::Refused(what.into()));
    let then = txn.ops.len() + txn.reads.len();
    if txn.compares.len() > limits.compares || then.max(txn.otherwise.len()) > limits.ops {
        return refused("too many operations in txn request");
    }
    if bytes(txn) > limits.bytes {
        return refused("request is too large");
    }
    let mut puts: Vec<&Vec<u8>> = Vec::new();
    for op in &txn.ops {
        if let RawOp::Put { key, .. } = op {
            puts.push(key);
        }
    }
    puts.sort_unstable();
    let twice = puts.windows(2).any(|pair| pair[0] == pair[1]);
    let deleted = |key: &Vec<u8>| {
        txn.ops.iter().any(|op| match op {
            RawOp::Put { .. } => false,
            RawOp::Delete { key: only, end } => contains(only, end.as_ref(), key),
        })
    };
    if twice || puts.iter().any(|key| deleted(key)) {
        return refused("duplicate key given in txn request");
    }
    Ok(())
}

fn bytes(txn: &RawTxn) -> usize {
    let len = |key: &Vec<u8>, end: &Option<Vec<u8>>| key.len() + end.as_ref().map_or(0, Vec::len);
    let compares = txn.compares.iter().map(|c| len(&c.key, &c.end) + 16);
    let looks = txn.reads.iter().chain(&txn.otherwise);
    let looks = looks.map(|look| len(&look.key, &look.end) + 16);
    let ops = txn.ops.iter().map(|op| match op {
        RawOp::Put { key, value, .. } => key.len() + value.len() + 16,
        RawOp::Delete { key, end } => len(key, end) + 16,
    });
    compares.chain(looks).chain(ops).sum()
}

fn contains(start: &[u8], end: Option<&Vec<u8>>, key: &[u8]) -> bool {
    end.map_or(key == start, |end| start <= key && key < end.as_slice())
}

impl History {
    pub(super) fn execute(&mut self, txn: &RawTxn) -> Result<(RawAnswer, Changed), ServerError> {
        let held = txn.compares.iter().all(|compare| self.holds(compare));
        let looks = if held { &txn.reads } else { &txn.otherwise };
        let pages: Result<_, _> = looks.iter().map(|look| self.look(look)).collect();
        let pages = pages?;
        let mut changed = Vec::new();
        if held {
            self.check_leases(&txn.ops)?;
            let revision = self.revision + 1;
            for op in &txn.ops {
                self.apply(op, revision, &mut changed);
            }
            if !changed.is_empty() {
                self.revision = revision;
            }
        }
        let answer = RawAnswer {
            held,
            revision: self.revision,
            pages,
        };
        Ok((answer, changed))
    }

    fn check_leases(&self, ops: &[RawOp]) -> Result<(), ServerError> {
        let missing = |op: &RawOp| match op {
            RawOp::Put { lease, .. } => *lease != 0 && !self.leases.contains_key(lease),
            RawOp::Delete { .. } => false,
        };
        if ops.iter().any(missing) {
            return Err(ServerError::LeaseGone);
        }
        Ok(())
    }

    fn apply(&mut self, op: &RawOp, revision: Revision, changed: &mut Changed) {
        match op {
            RawOp::Put { key, value, lease } => {
                let created = self.live(key).map_or(revision, |pair| pair.created);
                let pair = RawPair {
                    key: key.clone(),
                    value: value.clone(),
                    written: revision,
                    created,
                    lease: *lease,
                };
                self.stamp(key.clone(), revision, Some(pair));
                changed.push((key.clone(), revision));
            }
            RawOp::Delete { key, end } => {
                let doomed: Vec<_> = self
                    .pairs(key, end.as_ref(), self.revision)
                    .map(|pair| pair.key.clone())
                    .collect();
                for key in doomed {
                    self.stamp(key.clone(), revision, None);
                    changed.push((key, revision));
                }
            }
        }
    }

    fn stamp(&mut self, key: Vec<u8>, revision: Revision, pair: Option<RawPair>) {
        let stamps = self.keys.entry(key).or_default();
        stamps.push(Stamp { revision, pair });
    }

    fn live(&self, key: &[u8]) -> Option<&RawPair> {
        self.keys.get(key)?.last()?.pair.as_ref()
    }

    /// The pairs of a range after a revision.
    fn pairs<'a>(
        &'a self,
        key: &[u8],
        end: Option<&Vec<u8>>,
        revision: Revision,
    ) -> impl Iterator<Item = &'a RawPair> + use<'a> {
        let end = match end {
            Some(end) if end.as_slice() > key => Bound::Excluded(end.clone()),
            Some(_) => Bound::Excluded(key.to_vec()),
            None => Bound::Included(key.to_vec()),
        };
        let bounds = match &end {
            // An empty range, which a map refuses with this lower bound.
            Bound::Excluded(end) if end == key => None,
            _ => Some((Bound::Included(key.to_vec()), end)),
        };
        let stamps = bounds.map(|bounds| self.keys.range::<Vec<u8>, _>(bounds));
        stamps.into_iter().flatten().filter_map(move |(_, stamps)| {
            let known = stamps.partition_point(|stamp| stamp.revision <= revision);
            stamps.get(known.checked_sub(1)?)?.pair.as_ref()
        })
    }

    fn holds(&self, compare: &RawCompare) -> bool {
        let RawCompare { key, end, test } = compare;
        let mut pairs = self.pairs(key, end.as_ref(), self.revision).peekable();
        if pairs.peek().is_none() {
            return match test {
                Test::Absent => true,
                Test::Exists => false,
                Test::WrittenBy(revision) | Test::CreatedBy(revision) => *revision == 0,
                Test::NotAfter(_) => true,
            };
        }
        pairs.all(|pair| match test {
            Test::Absent => false,
            Test::Exists => true,
            Test::WrittenBy(revision) => pair.written == *revision,
            Test::CreatedBy(revision) => pair.created == *revision,
            Test::NotAfter(revision) => pair.written <= *revision,
        })
    }

    fn look(&self, look: &RawRange) -> Result<RawPage, ServerError> {
        let revision = match look.revision {
            0 => self.revision,
            old if old < self.compacted => return Err(ServerError::Compacted),
            new if new > self.revision => {
                return Err(ServerError::Refused("a future revision".into()));
            }
            revision => revision,
        };
        let limit = match look.limit {
            0 => usize::MAX,
            limit => limit,
        };
        let mut pairs = self.pairs(&look.key, look.end.as_ref(), revision);
        let found: Vec<_> = pairs.by_ref().take(limit).cloned().collect();
        let more = pairs.next().is_some();
        Ok(RawPage { pairs: found, more })
    }

    pub(super) fn compact(&mut self) {
        let revision = self.revision;
        self.compacted = revision;
        self.keys.retain(|_, stamps| {
            let known = stamps.partition_point(|stamp| stamp.revision <= revision);
            stamps.drain(..known.saturating_sub(1));
            stamps.len() > 1 || stamps.iter().any(|stamp| stamp.pair.is_some())
        });
    }

    pub(super) fn grant(&mut self, ttl: Duration) -> LeaseId {
        self.last_lease += 1;
        let until = self.now + ttl;
        self.leases.insert(self.last_lease, Lease { ttl, until });
        self.last_lease
    }

    pub(super) fn keep_alive(&mut self, lease: LeaseId) -> Result<Duration, ServerError> {
        let now = self.now;
        let lease = self.leases.get_mut(&lease).ok_or(ServerError::LeaseGone)?;
        lease.until = now + lease.ttl;
        Ok(lease.ttl)
    }

    pub(super) fn end_lease(&mut self, lease: LeaseId) -> Result<Changed, ServerError> {
        self.leases.remove(&lease).ok_or(ServerError::LeaseGone)?;
        let live = self.keys.keys().filter_map(|key| self.live(key));
        let bound = live.filter(|pair| pair.lease == lease);
        let doomed: Vec<_> = bound.map(|pair| pair.key.clone()).collect();
        if doomed.is_empty() {
            return Ok(Vec::new());
        }
        self.revision += 1;
        let revision = self.revision;
        for key in &doomed {
            self.stamp(key.clone(), revision, None);
        }
        Ok(doomed.into_iter().map(|key| (key, revision)).collect())
    }

    pub(super) fn pass(&mut self, time: Duration) -> Changed {
        self.now += time;
        let now = self.now;
        let over = self.leases.iter().filter(|(_, lease)| lease.until <= now);
        let over: Vec<LeaseId> = over.map(|(id, _)| *id).collect();
        let ended = over.into_iter().flat_map(|lease| self.end_lease(lease));
        ended.flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &[u8]) -> RawOp {
        RawOp::Put {
            key: key.to_vec(),
            value: vec![],
            lease: 0,
        }
    }

    fn txn(ops: Vec<RawOp>) -> RawTxn {
        RawTxn {
            ops,
            ..RawTxn::default()
        }
    }

    fn page(history: &History, revision: Revision) -> Result<usize, ServerError> {
        let look = RawRange {
            key: b"a".to_vec(),
            end: Some(b"z".to_vec()),
            limit: 0,
            revision,
        };
        Ok(history.look(&look)?.pairs.len())
    }

    #[test]
    fn old_revisions_are_there_until_they_are_compacted() {
        let mut history = History::default();
        for key in [b"a", b"b", b"c"] {
            history.execute(&txn(vec![put(key)])).unwrap();
        }
        let delete = RawOp::Delete {
            key: b"a".to_vec(),
            end: Some(b"c".to_vec()),
        };
        history.execute(&txn(vec![delete])).unwrap();
        assert_eq!(history.revision, 5);
        let counts = [1, 2, 3, 4, 5].map(|revision| page(&history, revision).unwrap());
        assert_eq!(counts, [0, 1, 2, 3, 1]);
        history.compact();
        assert_eq!(page(&history, 4), Err(ServerError::Compacted));
        assert_eq!(page(&history, 5), Ok(1));
        assert_eq!(page(&history, 0), Ok(1));
    }

    #[test]
    fn a_transaction_that_changes_a_key_twice_is_refused() {
        let limits = super::super::LIMITS;
        let range = RawOp::Delete {
            key: b"a".to_vec(),
            end: Some(b"c".to_vec()),
        };
        assert!(check(&txn(vec![put(b"a"), put(b"a")]), &limits).is_err());
        assert!(check(&txn(vec![put(b"b"), range.clone()]), &limits).is_err());
        assert!(check(&txn(vec![put(b"c"), range.clone(), range]), &limits).is_ok());
        let many = |count: u8| txn((0..count).map(|key| put(&[key])).collect());
        assert!(check(&many(128), &limits).is_ok());
        assert!(check(&many(129), &limits).is_err());
    }

    #[test]
    fn a_put_under_a_lease_that_has_ended_is_refused() {
        let mut history = History::default();
        let lease = history.grant(Duration::from_secs(5));
        let op = RawOp::Put {
            key: b"a".to_vec(),
            value: vec![],
            lease,
        };
        history.execute(&txn(vec![op.clone()])).unwrap();
        history.pass(Duration::from_secs(4));
        history.keep_alive(lease).unwrap();
        history.pass(Duration::from_secs(4));
        assert_eq!(page(&history, 0), Ok(1));
        history.pass(Duration::from_secs(1));
        assert_eq!(page(&history, 0), Ok(0));
        let late = history.execute(&txn(vec![op]));
        assert_eq!(late.unwrap_err(), ServerError::LeaseGone);
    }
}
