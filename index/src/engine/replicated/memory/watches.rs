//! Watches that say too little, too much, or too late, on request.

use std::sync::{Arc, Weak};

use super::faults::Random;
use crate::engine::replicated::server::{EventSink, RawEvent, Revision};
use crate::kv::KeyRange;
use crate::primitives::Mutex;

struct Watch {
    ranges: Vec<KeyRange>,
    sink: EventSink,
}

impl Watch {
    fn wants(&self, event: &RawEvent) -> bool {
        match event {
            RawEvent::Gap => true,
            RawEvent::Changed { key, .. } => {
                let mut ranges = self.ranges.iter();
                ranges.any(|(start, end)| start <= key && key < end)
            }
        }
    }
}

#[derive(Default)]
struct State {
    watches: Vec<Weak<Watch>>,
    lagging: bool,
    /// What is said later, and to whom.
    held: Vec<(Weak<Watch>, RawEvent)>,
    broken: bool,
    confused: Option<Random>,
}

/// All watches of a server.
#[derive(Default)]
pub(super) struct Watches(Mutex<State>);

impl std::fmt::Debug for Watches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watches")
    }
}

impl Watches {
    pub(super) fn add(
        &self,
        ranges: &[KeyRange],
        sink: EventSink,
    ) -> Box<dyn std::any::Any + Send + Sync> {
        let ranges = ranges.to_vec();
        let watch = Arc::new(Watch { ranges, sink });
        self.0.lock().watches.push(Arc::downgrade(&watch));
        Box::new(watch)
    }

    pub(super) fn lag(&self, lagging: bool) {
        let mut state = self.0.lock();
        state.lagging = lagging;
        if !lagging {
            let held = std::mem::take(&mut state.held);
            drop(state);
            say(held);
        }
    }

    pub(super) fn break_off(&self, broken: bool) {
        let mut state = self.0.lock();
        state.broken = broken;
        if !broken {
            let gaps = state
                .watches
                .iter()
                .map(|watch| (watch.clone(), RawEvent::Gap));
            let gaps = gaps.collect();
            drop(state);
            say(gaps);
        }
    }

    pub(super) fn confuse(&self, seed: u64) {
        self.0.lock().confused = Some(Random::new(seed, 100));
    }

    pub(super) fn tell(&self, changed: &[(Vec<u8>, Revision)]) {
        let mut state = self.0.lock();
        if changed.is_empty() || state.watches.is_empty() {
            return;
        }
        state.watches.retain(|watch| watch.strong_count() > 0);
        let mut events = Vec::new();
        for (key, revision) in changed {
            let event = RawEvent::Changed {
                key: key.clone(),
                revision: *revision,
            };
            for weak in state.watches.clone() {
                if !weak.upgrade().is_some_and(|watch| watch.wants(&event)) {
                    continue;
                }
                let mut said = event.clone();
                if let Some(random) = &mut state.confused {
                    if random.strikes() {
                        events.push((weak.clone(), said.clone()));
                    } else if random.strikes() {
                        said = RawEvent::Gap;
                    }
                }
                events.push((weak, said));
            }
        }
        if state.broken {
            return;
        }
        if state.lagging {
            return state.held.extend(events);
        }
        drop(state);
        say(events);
    }
}

/// Calls the sinks, without a lock.
fn say(events: Vec<(Weak<Watch>, RawEvent)>) {
    for (watch, event) in events {
        if let Some(watch) = watch.upgrade() {
            (watch.sink)(event);
        }
    }
}
