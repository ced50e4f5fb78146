//! Merges the slots that ended sessions have left of a counter.
//!
//! A session that is not among the live ones in a snapshot has ended for good, because numbers do
//! not come back, and can put its slots no more. The transaction compares every slot it removes, so
//! what another session merges or drops meanwhile is neither lost nor counted twice.

use super::Replicated;
use super::keys::KeySpace;
use super::link::LookError;
use super::server::{RawCompare, RawOp, RawPair, RawRange, RawTxn, Server, Test};
use super::slots;
use super::work::Work;
use crate::Error;
use crate::kv::{Counter, KeyRange, Outcome};

/// Slots that one transaction merges.
const MOST: usize = 32;

pub(super) fn merge_slots<S: Server>(kv: &Replicated<S>, key: &[u8]) -> Result<usize, Error> {
    let counter = kv.link.space.key(key);
    let mut merged = 0;
    loop {
        let mut dead = dead_slots(kv, &counter)?;
        dead.truncate(MOST.min(kv.limits.compares).max(1));
        if dead.is_empty() {
            return Ok(merged);
        }
        let mut sum = Counter::default();
        let mut work = Work::default();
        for slot in &dead {
            sum = sum.plus(&slots::decode(&slot.value).ok_or_else(|| slots::damaged(slot))?);
            work.compares.push(RawCompare {
                key: slot.key.clone(),
                end: None,
                test: Test::WrittenBy(slot.written),
            });
            work.ops.push(RawOp::Delete {
                key: slot.key.clone(),
                end: None,
            });
        }
        work.adds.insert(counter.clone(), sum);
        if let Outcome::Committed(_) = kv.execute(work)? {
            merged += dead.len();
        }
    }
}

/// The slots of a counter whose sessions have ended.
fn dead_slots<S: Server>(kv: &Replicated<S>, counter: &[u8]) -> Result<Vec<RawPair>, Error> {
    let look = |(key, end): KeyRange| RawRange {
        key,
        end: Some(end),
        limit: 0,
        revision: 0,
    };
    let raw = RawTxn {
        reads: vec![
            look(KeySpace::slots(counter)),
            look(kv.link.space.sessions()),
        ],
        ..RawTxn::default()
    };
    let answer = kv.link.look(&raw).map_err(|error| match error {
        LookError::Failed(error) => error,
        LookError::Compacted => Error::Conflict,
    })?;
    let mut pages = answer.pages.into_iter();
    let slots = pages.next().unwrap_or_default().pairs;
    let live = pages.next().unwrap_or_default().pairs;
    let is_dead = |slot: &RawPair| {
        let owner = KeySpace::split_slot(&slot.key).map(|(_, owner)| owner.session);
        owner.is_some_and(|number| live.iter().all(|session| session.created != number))
    };
    Ok(slots.into_iter().filter(is_dead).collect())
}
