//! Events of raw keys as hints about logical ones.
//!
//! An event does not say whether its key is an ordinary one or a slot. A key that may be either
//! becomes two hints, one of which leads to nothing: a hint too many is harmless, and one too few
//! is not.

use super::keys::KeySpace;
use super::link::Link;
use super::options::MOST_LANES;
use super::server::{RawEvent, Revision, Server, ServerError};
use crate::Error;
use crate::kv::{Hint, KeyRange, WatchGuard, Watcher};

impl<S: Server> Link<S> {
    pub(super) fn watch(
        &self,
        ranges: Vec<KeyRange>,
        watcher: Watcher,
    ) -> Result<WatchGuard, Error> {
        let reading = |(start, end): &KeyRange| self.space.reading(start, end);
        let raw: Vec<KeyRange> = ranges.iter().filter_map(reading).collect();
        let (space, ranges) = (self.space.clone(), std::sync::Arc::new(ranges));
        let watcher = std::sync::Arc::new(watcher);
        let mut retry = self.retry();
        loop {
            let (space, ranges) = (space.clone(), std::sync::Arc::clone(&ranges));
            let watcher = std::sync::Arc::clone(&watcher);
            let sink = Box::new(move |event: RawEvent| {
                for hint in hints(&event, &space, &ranges) {
                    watcher(&hint);
                }
            });
            match self.server.watch(&raw, sink) {
                Ok(guard) => return Ok(guard),
                Err(ServerError::Unknown(why) | ServerError::Unavailable(why)) => {
                    if retry.look_again().is_err() {
                        return Err(Error::Unavailable(why));
                    }
                }
                Err(other) => return Err(Error::Refused(other.to_string())),
            }
        }
    }
}

fn hints(event: &RawEvent, space: &KeySpace, ranges: &[KeyRange]) -> Vec<Hint> {
    let RawEvent::Changed { key, revision } = event else {
        return vec![Hint::Gap];
    };
    let Some(key) = space.logical(key) else {
        return Vec::new();
    };
    let wanted = |key: &&[u8]| {
        let mut ranges = ranges.iter();
        ranges.any(|(start, end)| start.as_slice() <= *key && *key < end.as_slice())
    };
    let keys = [Some(key), counter_of(key, *revision)];
    let hint = |key: &[u8]| Hint::Changed {
        key: key.to_vec(),
        version: *revision,
    };
    keys.into_iter()
        .flatten()
        .filter(wanted)
        .map(hint)
        .collect()
}

/// The counter of which the key may be a slot.
fn counter_of(key: &[u8], revision: Revision) -> Option<&[u8]> {
    let (counter, owner) = KeySpace::split_slot(key)?;
    // The number of a session is that of an earlier commit.
    let may_be = (1..=revision).contains(&owner.session) && owner.lane < MOST_LANES;
    may_be.then_some(counter)
}

#[cfg(test)]
mod tests {
    use super::super::keys::SlotOwner;
    use super::*;

    #[test]
    fn events_of_slots_lead_to_their_counter_and_private_ones_nowhere() {
        let space = KeySpace::new(b"v");
        let ranges = [(b"p".to_vec(), b"q".to_vec())];
        let keys = |raw: Vec<u8>| -> Vec<Vec<u8>> {
            let event = RawEvent::Changed {
                key: raw,
                revision: 9,
            };
            let key = |hint| match hint {
                Hint::Changed { key, .. } => key,
                Hint::Gap => panic!("a gap"),
            };
            let hints = hints(&event, &space, &ranges);
            hints.into_iter().map(key).collect()
        };
        let owner = SlotOwner {
            session: 3,
            lane: 1,
        };
        let slot = KeySpace::slot(&space.key(b"p1"), owner);
        assert!(keys(slot).contains(&b"p1".to_vec()));
        assert_eq!(keys(space.key(b"p-name-of-a-file")).len(), 1);
        assert_eq!(keys(space.key(b"q")).len(), 0);
        assert_eq!(keys(space.lane(7, 1)).len(), 0);
        assert_eq!(hints(&RawEvent::Gap, &space, &ranges), [Hint::Gap]);
    }
}
