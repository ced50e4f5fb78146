//! Turns a transaction into what it changes, key by key.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::memtable::Slot;
use crate::kv::Change;
use crate::kv::{Compare, Op, Txn, Version, Versioned};

/// The state that a transaction meets.
pub(crate) trait State {
    /// What may go wrong.
    type Error;

    /// A live key.
    fn get(&self, key: &[u8]) -> Result<Option<Slot>, Self::Error>;

    /// At most `limit` live keys of a range.
    fn keys(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Vec<Vec<u8>>, Self::Error>;
}

/// What a transaction comes to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Resolved {
    /// A compare does not hold.
    Conflict,
    /// Each changed key once, in order; none when nothing changes.
    Changes {
        /// The changes.
        changes: Vec<Change>,
        /// Whether keys are removed and the index does not grow.
        shrinks: bool,
    },
}

/// Resolves a transaction that would become commit `version`.
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
    for op in &txn.ops {
        match op {
            Op::Put { key, value, lease } => {
                let (existed, created) = match keys.get(key) {
                    Some((existed, Some(change))) => {
                        (*existed, change.value.as_ref().map(|value| value.created))
                    }
                    Some((existed, None)) => (*existed, None),
                    None => {
                        let old = state.get(key)?;
                        (old.is_some(), old.map(|slot| slot.created))
                    }
                };
                let created = created.unwrap_or(version);
                let value = Versioned {
                    value: Arc::from(value.as_slice()),
                    version,
                    created,
                };
                let (key, leased) = (key.clone(), lease.is_some());
                let change = Change {
                    key: key.clone(),
                    value: Some(value),
                    leased,
                };
                keys.insert(key, (existed, Some(change)));
            }
            Op::Delete(key) => match keys.get_mut(key) {
                Some((_, change)) => *change = None,
                None => {
                    let existed = state.get(key)?.is_some();
                    keys.insert(key.clone(), (existed, None));
                }
            },
            Op::DeleteRange { start, end } if start < end => {
                for (_, change) in keys.range_mut(start.clone()..end.clone()) {
                    change.1 = None;
                }
                for key in state.keys(start, end, usize::MAX)? {
                    keys.entry(key).or_insert((true, None));
                }
            }
            Op::DeleteRange { .. } => {}
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
    })
}
