//! The contract in its simplest form: everything in memory, nothing survives.
//!
//! Serves tests and is the reference that the other engines are compared with, so it stays
//! naive and shares no code with them.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::Error;
use crate::kv::{Compare, Found, Kv, Lease, Op, Outcome, Txn, Version, Versioned, Visitor, Want};

/// A value and whether it goes away with the lease.
type Entry = (Versioned, bool);
type Map = BTreeMap<Vec<u8>, Entry>;

/// An index in memory.
#[derive(Debug)]
pub struct ReferenceKv {
    state: RwLock<State>,
}

#[derive(Clone, Debug)]
struct State {
    map: Map,
    version: Version,
    lease: Lease,
    closed: bool,
}

impl Default for ReferenceKv {
    fn default() -> Self {
        Self::new()
    }
}

impl ReferenceKv {
    /// An empty index.
    #[must_use]
    pub fn new() -> Self {
        let state = State {
            map: Map::new(),
            version: 0,
            lease: Lease(1),
            closed: false,
        };
        Self {
            state: RwLock::new(state),
        }
    }

    /// What the next process finds: leased keys are gone and there is a new lease.
    #[must_use]
    pub fn reopen(&self) -> Self {
        let mut state = self.state.read().clone();
        state.end_lease();
        state.lease.0 += 1;
        state.closed = false;
        Self {
            state: RwLock::new(state),
        }
    }
}

impl State {
    fn check_open(&self) -> Result<(), Error> {
        if self.closed {
            Err(Error::Closed("it was closed".into()))
        } else {
            Ok(())
        }
    }

    fn range(&self, start: &[u8], end: &[u8], limit: usize) -> Found {
        keys_in(&self.map, start, end)
            .take(limit)
            .map(|(key, (value, _))| (key.clone(), value.clone()))
            .collect()
    }

    fn holds(&self, compare: &Compare) -> bool {
        let get = |key: &Vec<u8>| self.map.get(key).map(|(value, _)| value);
        match compare {
            Compare::Absent(key) => get(key).is_none(),
            Compare::Exists(key) => get(key).is_some(),
            Compare::VersionIs(key, version) => get(key).is_some_and(|v| v.version == *version),
            Compare::CreatedAt(key, version) => get(key).is_some_and(|v| v.created == *version),
            Compare::RangeEmpty { start, end } => self.range(start, end, 1).is_empty(),
        }
    }

    fn apply(&mut self, op: &Op, version: Version) {
        match op {
            Op::Put { key, value, lease } => {
                let created = self.map.get(key).map_or(version, |(old, _)| old.created);
                let value = Versioned {
                    value: Arc::from(value.as_slice()),
                    version,
                    created,
                };
                self.map.insert(key.clone(), (value, lease.is_some()));
            }
            Op::Delete(key) => {
                self.map.remove(key);
            }
            Op::DeleteRange { start, end } => {
                let doomed: Vec<_> = keys_in(&self.map, start, end)
                    .map(|(k, _)| k.clone())
                    .collect();
                for key in doomed {
                    self.map.remove(&key);
                }
            }
        }
    }

    fn end_lease(&mut self) {
        let before = self.map.len();
        self.map.retain(|_, (_, leased)| !*leased);
        if self.map.len() < before {
            self.version += 1;
        }
    }
}

/// The entries of a range; one that is empty or upside down has none.
fn keys_in<'a>(
    map: &'a Map,
    start: &[u8],
    end: &[u8],
) -> impl Iterator<Item = (&'a Vec<u8>, &'a Entry)> {
    let range = (start < end).then(|| map.range(start.to_vec()..end.to_vec()));
    range.into_iter().flatten()
}

impl Kv for ReferenceKv {
    fn get_many(&self, wants: &[Want]) -> Result<Vec<Found>, Error> {
        let state = self.state.read();
        state.check_open()?;
        let answer = |want: &Want| match want {
            Want::Key(key) => state
                .map
                .get(key)
                .map(|(v, _)| (key.clone(), v.clone()))
                .into_iter()
                .collect(),
            Want::Range { start, end, limit } => state.range(start, end, *limit),
        };
        Ok(wants.iter().map(answer).collect())
    }

    fn commit(&self, txn: &Txn) -> Result<Outcome, Error> {
        let mut state = self.state.write();
        state.check_open()?;
        let own = state.lease;
        let foreign = |op: &Op| matches!(op, Op::Put { lease: Some(l), .. } if *l != own);
        if txn.ops.iter().any(foreign) {
            return Err(Error::ForeignLease);
        }
        if !txn.compares.iter().all(|compare| state.holds(compare)) {
            return Ok(Outcome::Conflict);
        }
        let version = state.version + 1;
        let mut next = state.clone();
        for op in &txn.ops {
            next.apply(op, version);
        }
        // A transaction that changes nothing takes no version.
        if next.map != state.map {
            next.version = version;
            *state = next;
        }
        Ok(Outcome::Committed(state.version))
    }

    fn sync(&self, _version: Version) -> Result<(), Error> {
        self.state.read().check_open()
    }

    fn version(&self) -> Version {
        self.state.read().version
    }

    fn syncs(&self) -> u64 {
        0
    }

    fn lease(&self) -> Lease {
        self.state.read().lease
    }

    fn dump(&self, visit: &mut Visitor<'_>) -> Result<(), Error> {
        let state = self.state.read().clone();
        state.check_open()?;
        state
            .map
            .iter()
            .try_for_each(|(key, (value, _))| visit(key, value))
    }

    fn close(&self) -> Result<(), Error> {
        let mut state = self.state.write();
        state.end_lease();
        state.closed = true;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(kv: &ReferenceKv, key: &[u8]) -> Version {
        let mut txn = Txn::new();
        txn.put(key.to_vec(), b"v".to_vec());
        match kv.commit(&txn).unwrap() {
            Outcome::Committed(version) => version,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_put_keeps_the_creation_and_a_delete_ends_it() {
        let kv = ReferenceKv::new();
        let first = put(&kv, b"a");
        let second = put(&kv, b"a");
        let seen = kv.get(b"a").unwrap().unwrap();
        assert_eq!((seen.version, seen.created), (second, first));
        let mut txn = Txn::new();
        txn.delete(b"a".to_vec()).put(b"a".to_vec(), b"w".to_vec());
        kv.commit(&txn).unwrap();
        let seen = kv.get(b"a").unwrap().unwrap();
        assert_eq!((seen.version, seen.created), (3, 3));
    }

    #[test]
    fn a_transaction_that_changes_nothing_takes_no_version() {
        let kv = ReferenceKv::new();
        put(&kv, b"a");
        let mut txn = Txn::new();
        txn.delete(b"b".to_vec())
            .delete_range(b"z".to_vec(), b"c".to_vec());
        assert_eq!(kv.commit(&txn).unwrap(), Outcome::Committed(1));
        assert_eq!(kv.version(), 1);
    }

    #[test]
    fn leased_keys_are_gone_for_the_next_process() {
        let kv = ReferenceKv::new();
        let lease = Some(kv.lease());
        let txn = Txn {
            compares: vec![],
            ops: vec![Op::Put {
                key: vec![1],
                value: vec![],
                lease,
            }],
        };
        kv.commit(&txn).unwrap();
        let next = kv.reopen();
        assert_eq!(next.get(&[1]).unwrap(), None);
        assert!(
            matches!(next.commit(&txn), Err(Error::ForeignLease)),
            "a dead lease"
        );
    }
}
