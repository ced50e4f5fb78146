//! Resolves a transaction into its changes, key by key.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::memtable::Slot;
use crate::kv::Change;
use crate::kv::{Compare, Counter, Op, Txn, Version, Versioned};

/// The state that a transaction is applied to.
pub(crate) trait State {
    /// The error of a read.
    type Error;

    /// A live key.
    fn get(&self, key: &[u8]) -> Result<Option<Slot>, Self::Error>;

    /// At most `limit` live keys of a range.
    fn keys(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Vec<Vec<u8>>, Self::Error>;

    /// The newest commit that wrote a live key of a range.
    fn newest(&self, start: &[u8], end: &[u8]) -> Result<Option<Version>, Self::Error>;
}

/// The result of a transaction.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Resolved {
    /// A compare does not hold.
    Conflict,
    /// A value that is to be added to is not that of a counter.
    NotACounter(Vec<u8>),
    /// Each changed key once, in order; none when nothing changes.
    Changes {
        /// The changes.
        changes: Vec<Change>,
        /// Whether keys are removed and the index does not grow.
        shrinks: bool,
    },
}

/// Resolves a transaction that would become commit `version`. It names each key once.
pub(crate) fn resolve<S: State>(
    txn: &Txn,
    state: &S,
    version: Version,
) -> Result<Resolved, S::Error> {
    for compare in &txn.compares {
        if !holds(compare, state)? {
            return Ok(Resolved::Conflict);
        }
    }
    // Per key: whether it existed before, and what it becomes.
    let mut keys: BTreeMap<Vec<u8>, (bool, Option<Change>)> = BTreeMap::new();
    let mut put = |key: &Vec<u8>, old: Option<Slot>, value: Arc<[u8]>, leased| {
        let change = Change {
            key: key.clone(),
            value: Some(Versioned {
                value,
                version,
                created: old.as_ref().map_or(version, |slot| slot.created),
            }),
            leased,
        };
        keys.insert(key.clone(), (old.is_some(), Some(change)));
    };
    for op in &txn.ops {
        match op {
            Op::Put { key, value, lease } => {
                put(key, state.get(key)?, Arc::from(&value[..]), lease.is_some());
            }
            Op::Add { key, delta } => {
                let old = state.get(key)?;
                let sum = match old.as_ref().and_then(|slot| slot.value.as_deref()) {
                    Some(value) => match Counter::decode(value) {
                        Some(sum) => sum,
                        None => return Ok(Resolved::NotACounter(key.clone())),
                    },
                    None => Counter::default(),
                };
                put(key, old, Arc::from(sum.plus(delta).encode()), false);
            }
            Op::Delete(_) | Op::DropCounter(_) | Op::DeleteRange { .. } => {}
        }
    }
    for op in &txn.ops {
        match op {
            Op::Delete(key) | Op::DropCounter(key) => {
                keys.insert(key.clone(), (state.get(key)?.is_some(), None));
            }
            Op::DeleteRange { start, end } => {
                for key in state.keys(start, end, usize::MAX)? {
                    keys.insert(key, (true, None));
                }
            }
            Op::Put { .. } | Op::Add { .. } => {}
        }
    }
    let (mut changes, mut balance, mut removed) = (Vec::new(), 0i64, false);
    for (key, (existed, change)) in keys {
        match change {
            Some(change) => {
                balance += i64::from(!existed);
                changes.push(change);
            }
            None if existed => {
                balance -= 1;
                removed = true;
                changes.push(Change {
                    key,
                    value: None,
                    leased: false,
                });
            }
            None => {}
        }
    }
    Ok(Resolved::Changes {
        changes,
        shrinks: removed && balance <= 0,
    })
}

fn holds<S: State>(compare: &Compare, state: &S) -> Result<bool, S::Error> {
    Ok(match compare {
        Compare::Absent(key) => state.get(key)?.is_none(),
        Compare::Exists(key) => state.get(key)?.is_some(),
        Compare::VersionIs(key, version) => state.get(key)?.is_some_and(|s| s.version == *version),
        Compare::CreatedAt(key, version) => state.get(key)?.is_some_and(|s| s.created == *version),
        Compare::RangeEmpty { start, end } => state.keys(start, end, 1)?.is_empty(),
        Compare::RangeNotNewer {
            start,
            end,
            version,
        } => state
            .newest(start, end)?
            .is_none_or(|newest| newest <= *version),
    })
}
