//! Gives memory and space of a burst of work back to the machine after a while without activity.

use std::sync::Arc;
use std::time::{Duration, Instant};

use shale_backing::release_memory;

use super::LIVE_PERCENT;
use super::worker::GcControl;
use crate::volume::Volume;
use crate::write::CommitControl;

/// How long there must have been no activity.
const QUIET: Duration = Duration::from_secs(30);
/// The share of the cache of decoded frames that is kept, those used last.
const KEPT_SHARE: u64 = 8;

/// Counters that change with everything that takes memory in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Traces {
    version: u64,
    frames: u64,
    appends: u64,
    unwritten: u64,
}

/// Time of the last activity.
#[derive(Debug)]
struct LastWork {
    seen: Option<Traces>,
    since: Instant,
    /// There was no activity since memory was given back.
    rested: bool,
}

impl LastWork {
    fn new() -> Self {
        Self {
            seen: None,
            since: Instant::now(),
            rested: false,
        }
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

/// Detects the end of a burst; called now and then by a thread that is awake anyway.
pub(super) struct IdleWatch {
    volume: Arc<Volume>,
    gc: Arc<GcControl>,
    last: LastWork,
}

impl IdleWatch {
    pub(super) fn new(volume: &Arc<Volume>, gc: &Arc<GcControl>) -> Self {
        Self {
            volume: Arc::clone(volume),
            gc: Arc::clone(gc),
            last: LastWork::new(),
        }
    }

    /// Whether it is time to give memory back: once after each burst.
    pub(super) fn is_due(&mut self) -> bool {
        let counters = &self.volume.stats;
        let traces = Traces {
            version: self.volume.namespace.kv().version(),
            frames: counters.cache_hits.get() + counters.cache_misses.get(),
            appends: counters.appends.get(),
            unwritten: self.volume.limiter.used(),
        };
        self.last.look(traces, Instant::now())
    }

    /// Gives back memory that was not used lately; the memory for the next burst of writes stays.
    /// Also gives back space: garbage in packs that still grow would otherwise wait for the next
    /// gigabyte.
    pub(super) fn rest(&self) {
        let Volume {
            namespace,
            frames,
            limiter,
            space,
            ..
        } = &*self.volume;
        if frames.packs.is_wasteful(LIVE_PERCENT) {
            self.gc.ask(LIVE_PERCENT);
        }
        frames.cache.shrink(frames.cache.limit() / KEPT_SHARE);
        frames.pool.trim(limiter);
        space.relax(limiter.used());
        namespace.kv().rest();
        release_memory();
    }
}

/// The thread for this where there is no committer.
pub(crate) struct IdleWorker {
    watch: IdleWatch,
    /// Ticks as for a committer.
    ticks: Arc<CommitControl>,
}

impl IdleWorker {
    pub(crate) fn new(
        volume: &Arc<Volume>,
        gc: &Arc<GcControl>,
        ticks: &Arc<CommitControl>,
    ) -> Self {
        Self {
            watch: IdleWatch::new(volume, gc),
            ticks: Arc::clone(ticks),
        }
    }

    /// Runs until told to stop.
    pub(crate) fn run(mut self) {
        while self.ticks.next().is_some() {
            self.ticks.end();
            if self.watch.is_due() {
                self.watch.rest();
            }
        }
        self.ticks.stopped();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_once_after_each_time_of_work() {
        let start = Instant::now();
        let mut last = LastWork::new();
        let traces = |version| Traces {
            version,
            frames: 0,
            appends: 0,
            unwritten: 0,
        };
        let mut look =
            |version, seconds| last.look(traces(version), start + Duration::from_secs(seconds));
        assert!(!look(1, 0));
        assert!(!look(1, 29));
        assert!(look(1, 30));
        assert!(!look(1, 31) && !look(1, 1000));
        assert!(!look(2, 1001) && !look(3, 1020) && !look(3, 1049));
        assert!(look(3, 1050));
        assert!(!look(3, 2000));
    }
}
