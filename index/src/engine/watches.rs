//! Watches of an engine that sees every commit itself.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::kv::{Hint, KeyRange, Version, WatchGuard, Watcher};

/// Who is told of which keys.
#[derive(Debug, Default)]
pub(crate) struct Watches(Mutex<Vec<Weak<Watch>>>);

struct Watch {
    ranges: Vec<KeyRange>,
    watcher: Watcher,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch")
            .field("ranges", &self.ranges)
            .finish_non_exhaustive()
    }
}

impl Watches {
    /// Begins a watch, which ends with the guard.
    pub(crate) fn add(&self, ranges: Vec<KeyRange>, watcher: Watcher) -> WatchGuard {
        let watch = Arc::new(Watch { ranges, watcher });
        self.0.lock().push(Arc::downgrade(&watch));
        Box::new(watch)
    }

    /// Tells of keys that a commit has changed.
    pub(crate) fn tell<'a>(&self, keys: impl Iterator<Item = &'a [u8]> + Clone, version: Version) {
        let mut watches = self.0.lock();
        if watches.is_empty() {
            return;
        }
        watches.retain(|watch| watch.strong_count() > 0);
        let watches: Vec<Arc<Watch>> = watches.iter().filter_map(Weak::upgrade).collect();
        for watch in watches {
            let wanted = |key: &&[u8]| {
                let mut ranges = watch.ranges.iter();
                ranges.any(|(start, end)| start.as_slice() <= *key && *key < end.as_slice())
            };
            for key in keys.clone().filter(wanted) {
                let key = key.to_vec();
                (watch.watcher)(&Hint::Changed { key, version });
            }
        }
    }
}
