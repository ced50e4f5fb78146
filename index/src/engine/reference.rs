//! The contract in its simplest form: everything in memory, nothing survives.
//!
//! Serves tests and is the reference that the other engines are compared with, so it stays
//! naive and shares no code with them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::RwLock;

use super::watches::Watches;
use crate::Error;
use crate::kv::{
    Compare, Counter, Found, KeyRange, Kv, Lease, Limits, Op, Outcome, Snapshot, Txn, Version,
    Versioned, Visitor, Want, WatchGuard, Watcher,
};

/// A value, and the lease with which it is removed.
type Entry = (Versioned, Option<Lease>);
type Map = BTreeMap<Vec<u8>, Entry>;

/// An index in memory, as one session sees it.
#[derive(Debug)]
pub struct ReferenceKv {
    state: Arc<RwLock<State>>,
    watches: Arc<Watches>,
    lease: Lease,
    limits: Limits,
    shared: bool,
}

#[derive(Clone, Debug)]
struct State {
    map: Map,
    version: Version,
    /// The lease granted last.
    granted: u64,
    /// Leases that have not ended.
    leases: BTreeSet<Lease>,
    /// Requests of all sessions.
    requests: u64,
}

impl Default for ReferenceKv {
    fn default() -> Self {
        Self::new()
    }
}

impl ReferenceKv {
    /// An empty index for one session.
    #[must_use]
    pub fn new() -> Self {
        let lease = Lease(1);
        let state = State {
            map: Map::new(),
            version: 0,
            granted: lease.0,
            leases: [lease].into(),
            requests: 0,
        };
        Self {
            state: Arc::new(RwLock::new(state)),
            watches: Arc::default(),
            lease,
            limits: Limits::NONE,
            shared: false,
        }
    }

    /// An empty index that several sessions share, with limits for a transaction.
    #[must_use]
    pub fn shared(limits: Limits) -> Self {
        Self {
            limits,
            shared: true,
            ..Self::new()
        }
    }

    /// Another session over the same state.
    #[must_use]
    pub fn another(&self) -> Self {
        let lease = self.state.write().grant();
        Self {
            state: Arc::clone(&self.state),
            watches: Arc::clone(&self.watches),
            lease,
            ..*self
        }
    }

    /// Ends the session as if it had not been heard of for too long.
    pub fn expire(&self) {
        self.state.write().end_lease(self.lease);
    }

    /// Ends another session in the same way.
    pub fn expire_lease(&self, lease: Lease) {
        self.state.write().end_lease(lease);
    }

    /// Requests that all sessions have made.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.state.read().requests
    }

    /// The state that the next process finds: leased keys are gone and there is a new lease.
    #[must_use]
    pub fn reopen(&self) -> Self {
        let mut state = self.state.read().clone();
        state.end_lease(self.lease);
        let lease = state.grant();
        Self {
            state: Arc::new(RwLock::new(state)),
            watches: Arc::default(),
            lease,
            ..*self
        }
    }

    fn check_open(&self, state: &State) -> Result<(), Error> {
        if state.leases.contains(&self.lease) {
            Ok(())
        } else if self.shared {
            Err(Error::SessionEnded("its lease has ended".to_owned()))
        } else {
            Err(Error::Closed("it was closed".into()))
        }
    }
}

impl State {
    fn grant(&mut self) -> Lease {
        self.granted += 1;
        let lease = Lease(self.granted);
        self.leases.insert(lease);
        lease
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
            Compare::RangeNotNewer {
                start,
                end,
                version,
            } => keys_in(&self.map, start, end).all(|(_, (value, _))| value.version <= *version),
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
                self.map.insert(key.clone(), (value, *lease));
            }
            Op::Add { key, delta } => {
                let old = self.map.get(key).map(|(old, _)| old);
                let sum = old.and_then(|old| Counter::decode(&old.value));
                let value = Versioned {
                    value: Arc::from(sum.unwrap_or_default().plus(delta).encode()),
                    version,
                    created: old.map_or(version, |old| old.created),
                };
                self.map.insert(key.clone(), (value, None));
            }
            Op::Delete(key) | Op::DropCounter(key) => {
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

    fn end_lease(&mut self, lease: Lease) {
        self.leases.remove(&lease);
        let before = self.map.len();
        self.map.retain(|_, (_, holder)| *holder != Some(lease));
        if self.map.len() < before {
            self.version += 1;
        }
    }
}

/// The entries of a range; an empty or inverted one has none.
fn keys_in<'a>(
    map: &'a Map,
    start: &[u8],
    end: &[u8],
) -> impl Iterator<Item = (&'a Vec<u8>, &'a Entry)> {
    let range = (start < end).then(|| map.range(start.to_vec()..end.to_vec()));
    range.into_iter().flatten()
}

impl Kv for ReferenceKv {
    fn get_many(&self, wants: &[Want]) -> Result<Snapshot, Error> {
        self.state.write().requests += 1;
        let state = self.state.read();
        self.check_open(&state)?;
        let answer = |want: &Want| match want {
            Want::Key(key) | Want::Counter(key) => state
                .map
                .get(key)
                .map(|(v, _)| (key.clone(), v.clone()))
                .into_iter()
                .collect(),
            Want::Range { start, end, limit } => state.range(start, end, *limit),
        };
        Ok(Snapshot {
            version: state.version,
            found: wants.iter().map(answer).collect(),
        })
    }

    fn commit(&self, txn: &Txn) -> Result<Outcome, Error> {
        txn.check(&self.limits())?;
        let mut state = self.state.write();
        state.requests += 1;
        self.check_open(&state)?;
        let own = self.lease;
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
            let before = std::mem::replace(&mut *state, next);
            let keys = before.map.keys().chain(state.map.keys());
            let differs = |key: &&Vec<u8>| before.map.get(*key) != state.map.get(*key);
            let changed: Vec<&[u8]> = keys.filter(differs).map(Vec::as_slice).collect();
            self.watches.tell(changed.iter().copied(), version);
        }
        Ok(Outcome::Committed(state.version))
    }

    fn sync(&self, _version: Version) -> Result<(), Error> {
        self.check_open(&self.state.read())
    }

    fn version(&self) -> Version {
        self.state.read().version
    }

    fn syncs(&self) -> u64 {
        0
    }

    fn lease(&self) -> Lease {
        self.lease
    }

    fn limits(&self) -> Limits {
        self.limits
    }

    fn is_shared(&self) -> bool {
        self.shared
    }

    fn scan(
        &self,
        (start, end): &KeyRange,
        visit: &mut Visitor<'_>,
        _restart: &mut dyn FnMut(),
    ) -> Result<Version, Error> {
        let state = self.state.read();
        self.check_open(&state)?;
        keys_in(&state.map, start, end).try_for_each(|(key, (value, _))| visit(key, value))?;
        Ok(state.version)
    }

    fn watch(&self, ranges: Vec<KeyRange>, watcher: Watcher) -> Result<WatchGuard, Error> {
        self.check_open(&self.state.read())?;
        Ok(self.watches.add(ranges, watcher))
    }

    fn dump(&self, visit: &mut Visitor<'_>) -> Result<(), Error> {
        let state = self.state.read().clone();
        self.check_open(&state)?;
        state
            .map
            .iter()
            .try_for_each(|(key, (value, _))| visit(key, value))
    }

    fn close(&self) -> Result<(), Error> {
        self.state.write().end_lease(self.lease);
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
        txn.delete(b"a".to_vec());
        kv.commit(&txn).unwrap();
        put(&kv, b"a");
        let seen = kv.get(b"a").unwrap().unwrap();
        assert_eq!((seen.version, seen.created), (4, 4));
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
