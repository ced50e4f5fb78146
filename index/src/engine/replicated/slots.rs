//! Counters that many sessions add to without reading or locking: a slot for each writer.
//!
//! A slot belongs to one lane of one session, which alone puts it. It holds the sum of everything
//! that was committed through that lane since the slot last did not exist, and the counter is the
//! sum of its slots. Others only remove slots: by dropping the counter, by deleting a range, or by
//! merging slots of ended sessions into their own.
//!
//! Invariant: a transaction puts `sum + delta` into a slot only if the slot is still as it was when
//! its lane last knew that it held `sum`. The lane remembers the sum together with the commit that
//! wrote it, and the transaction compares that commit, or that the slot does not exist where the
//! lane remembers nothing. As one commit writes a slot once, the same commit means the same sum:
//! - No addition is lost: what was put is the sum of all before it.
//! - No addition survives a drop: after one, the compare fails, the lane reads the slot in the same
//!   request, and sends the transaction again with what it found.
//! - Forgetting is harmless: the compare that the slot does not exist fails, and the lane reads it.
//!
//! A transaction that was put by a lost request is no exception: the lane finds out first
//! ([`lanes`](super::lanes)), and remembers the sum with the commit that it found.
//!
//! What a counter shows as its version is the newest commit of its slots. `created` is the oldest
//! and rises when slots are merged.

use std::collections::HashMap;
use std::sync::Arc;

use super::keys::{KeySpace, ORDINARY, SLOT, SlotOwner};
use super::server::{RawCompare, RawOp, RawPage, RawPair, RawRange, RawTxn, Revision, Test};
use crate::Error;
use crate::kv::{Counter, Version, Versioned};

/// Slots that a lane remembers at most.
const REMEMBERED: usize = 4096;

/// The value of a slot.
pub(super) fn encode(sum: &Counter) -> Vec<u8> {
    let mut value = vec![SLOT];
    value.extend_from_slice(&sum.encode());
    value
}

pub(super) fn decode(value: &[u8]) -> Option<Counter> {
    value.strip_prefix(&[SLOT]).and_then(Counter::decode)
}

#[derive(Clone, Copy, Debug)]
struct Known {
    sum: Counter,
    written: Revision,
}

/// What one lane remembers of its slots.
#[derive(Debug)]
pub(super) struct Slots {
    owner: SlotOwner,
    known: HashMap<Vec<u8>, Known>,
}

/// The slots that a transaction puts.
#[derive(Debug, Default)]
pub(super) struct SlotPuts(Vec<SlotPut>);

#[derive(Debug)]
struct SlotPut {
    counter: Vec<u8>,
    /// What was remembered, and compared.
    before: Option<Known>,
    /// What the slot holds afterwards.
    after: Counter,
}

impl Slots {
    pub(super) fn new(owner: SlotOwner) -> Self {
        Self {
            owner,
            known: HashMap::new(),
        }
    }

    /// Adds the slots of some additions to a transaction: compare, put, and look if a compare
    /// fails.
    pub(super) fn add_to<'a>(
        &mut self,
        raw: &mut RawTxn,
        adds: impl Iterator<Item = (&'a Vec<u8>, &'a Counter)>,
    ) -> SlotPuts {
        if self.known.len() > REMEMBERED {
            self.known.clear();
        }
        let mut puts = SlotPuts::default();
        for (counter, delta) in adds {
            let key = KeySpace::slot(counter, self.owner);
            let before = self.known.get(counter).copied();
            let after = before.map_or(*delta, |known| known.sum.plus(delta));
            raw.compares.push(RawCompare {
                key: key.clone(),
                end: None,
                test: before.map_or(Test::Absent, |known| Test::WrittenBy(known.written)),
            });
            raw.otherwise.push(RawRange {
                key: key.clone(),
                end: None,
                limit: 0,
                revision: 0,
            });
            raw.ops.push(RawOp::Put {
                key,
                value: encode(&after),
                lease: 0,
            });
            puts.0.push(SlotPut {
                counter: counter.clone(),
                before,
                after,
            });
        }
        puts
    }

    /// Remembers what a commit has put.
    pub(super) fn committed(&mut self, puts: SlotPuts, written: Revision) {
        for SlotPut { counter, after, .. } in puts.0 {
            let sum = after;
            self.known.insert(counter, Known { sum, written });
        }
    }

    /// Remembers what the slots are, given the looks of a transaction that did not hold. Says
    /// whether one was not as remembered; otherwise no slot was the reason.
    pub(super) fn correct(&mut self, puts: SlotPuts, pages: &[RawPage]) -> Result<bool, Error> {
        let mut wrong = false;
        for (put, page) in puts.0.into_iter().zip(pages) {
            let found = page.pairs.first();
            let written = found.map(|pair| pair.written);
            if written == put.before.map(|known| known.written) {
                continue;
            }
            wrong = true;
            match found {
                Some(pair) => {
                    let sum = decode(&pair.value).ok_or_else(|| damaged(pair))?;
                    let written = pair.written;
                    self.known.insert(put.counter, Known { sum, written });
                }
                None => drop(self.known.remove(&put.counter)),
            }
        }
        Ok(wrong)
    }
}

pub(super) fn damaged(pair: &RawPair) -> Error {
    Error::Corrupt {
        what: format!("the raw key {}", pair.key.escape_ascii()),
        detail: "its value is not that of a key or a slot".into(),
    }
}

/// Turns raw pairs, in order, into logical ones: slots of one counter become one pair, and what is
/// outside of the range is dropped.
#[derive(Debug)]
pub(super) struct Gather<'a> {
    space: &'a KeySpace,
    /// First key, and first key after the range.
    bounds: (&'a [u8], Option<&'a [u8]>),
    counter: Option<Sum>,
}

#[derive(Debug)]
struct Sum {
    key: Vec<u8>,
    sum: Counter,
    version: Version,
    created: Version,
}

impl<'a> Gather<'a> {
    pub(super) fn new(space: &'a KeySpace, start: &'a [u8], end: Option<&'a [u8]>) -> Self {
        let bounds = (start, end);
        Self {
            space,
            bounds,
            counter: None,
        }
    }

    /// Takes a pair, and emits those that are complete.
    pub(super) fn push(
        &mut self,
        pair: &RawPair,
        emit: &mut dyn FnMut(Vec<u8>, Versioned) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Some(key) = self.space.logical(&pair.key) else {
            return Err(damaged(pair));
        };
        match pair.value.split_first() {
            Some((&ORDINARY, value)) => {
                self.finish(emit)?;
                if self.wants(key) {
                    let value = Versioned {
                        value: Arc::from(value),
                        version: pair.written,
                        created: pair.created,
                    };
                    emit(key.to_vec(), value)?;
                }
            }
            Some((&SLOT, _)) => {
                let (counter, _) = KeySpace::split_slot(key).ok_or_else(|| damaged(pair))?;
                let more = decode(&pair.value).ok_or_else(|| damaged(pair))?;
                if self.counter.as_ref().is_some_and(|sum| sum.key != counter) {
                    self.finish(emit)?;
                }
                let sum = self.counter.get_or_insert_with(|| Sum {
                    key: counter.to_vec(),
                    sum: Counter::default(),
                    version: 0,
                    created: Version::MAX,
                });
                sum.sum = sum.sum.plus(&more);
                sum.version = sum.version.max(pair.written);
                sum.created = sum.created.min(pair.created);
            }
            _ => return Err(damaged(pair)),
        }
        Ok(())
    }

    /// Emits the last counter. Nothing may follow.
    pub(super) fn finish(
        &mut self,
        emit: &mut dyn FnMut(Vec<u8>, Versioned) -> Result<(), Error>,
    ) -> Result<(), Error> {
        match self.counter.take() {
            Some(sum) if self.wants(&sum.key) => {
                let value = Versioned {
                    value: Arc::from(sum.sum.encode()),
                    version: sum.version,
                    created: sum.created,
                };
                emit(sum.key, value)
            }
            _ => Ok(()),
        }
    }

    fn wants(&self, key: &[u8]) -> bool {
        let (start, end) = self.bounds;
        start <= key && end.is_none_or(|end| key < end)
    }
}
