//! Memory and space that a burst of work has left behind go back to the machine when nothing has
//! happened for a while.

use std::time::{Duration, Instant};

use shale_backing::give_back_memory;

use crate::janitor::LIVE_PERCENT;
use crate::store::Inner;

/// How long nothing must have happened.
const QUIET: Duration = Duration::from_secs(30);
/// The part of the cache of decoded frames that is kept, those used last.
const KEPT_SHARE: u64 = 8;

/// What changes with everything that takes memory in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Traces {
    version: u64,
    frames: u64,
    appends: u64,
    unwritten: u64,
}

/// Looks for the end of a time of work; asked now and then by somebody who is awake anyway.
#[derive(Debug)]
pub(crate) struct Watch {
    seen: Option<Traces>,
    since: Instant,
    /// Nothing has happened since memory was given back.
    rested: bool,
}

impl Watch {
    pub(crate) fn new() -> Self {
        Self {
            seen: None,
            since: Instant::now(),
            rested: false,
        }
    }

    /// Whether it is time to give memory back: once after each time of work.
    pub(crate) fn is_due(&mut self, inner: &Inner) -> bool {
        self.look(inner.traces(), Instant::now())
    }

    fn look(&mut self, traces: Traces, now: Instant) -> bool {
        if self.seen != Some(traces) {
            self.seen = Some(traces);
            self.since = now;
            self.rested = false;
        }
        let due = !self.rested && now.duration_since(self.since) >= QUIET;
        self.rested |= due;
        due
    }
}

/// The thread that does nothing else, where there is no committer.
pub(crate) fn work(inner: &Inner) {
    let mut watch = Watch::new();
    while inner.committer.next().is_some() {
        inner.committer.end();
        if watch.is_due(inner) {
            inner.rest();
        }
    }
    inner.committer.stopped();
}

impl Inner {
    fn traces(&self) -> Traces {
        let counters = &self.frames.packs.counters;
        Traces {
            version: self.namespace.kv().version(),
            frames: counters.cache_hits.get() + counters.cache_misses.get(),
            appends: counters.appends.get(),
            unwritten: self.budget.used(),
        }
    }

    /// Gives memory back that nobody has used lately; what is kept for the next burst of writes
    /// stays. And space: what settling and deleting have left in packs that still grow would wait
    /// there for the next gigabyte.
    pub(crate) fn rest(&self) {
        if self.frames.packs.is_wasteful(LIVE_PERCENT) {
            self.collector.ask(LIVE_PERCENT);
        }
        let cache = &self.frames.cache;
        cache.shrink(cache.limit() / KEPT_SHARE);
        self.frames.spare.trim(&self.budget);
        self.space.relax(self.budget.used());
        self.namespace.kv().rest();
        give_back_memory();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_once_after_each_time_of_work() {
        let start = Instant::now();
        let mut watch = Watch::new();
        let traces = |version| Traces {
            version,
            frames: 0,
            appends: 0,
            unwritten: 0,
        };
        let mut look =
            |version, seconds| watch.look(traces(version), start + Duration::from_secs(seconds));
        assert!(!look(1, 0));
        assert!(!look(1, 29));
        assert!(look(1, 30));
        assert!(!look(1, 31) && !look(1, 1000));
        assert!(!look(2, 1001) && !look(3, 1020) && !look(3, 1049));
        assert!(look(3, 1050));
        assert!(!look(3, 2000));
    }
}
