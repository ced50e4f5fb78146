//! A thread that rewrites packs of which little is alive.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crate::frames::FrameEncoder;
use crate::pack::PackId;
use crate::store::Inner;
use crate::sync::{Condvar, Mutex, Priority, set_priority};
use crate::{Error, Store};

/// How often it looks for packs by itself.
const TICK: Duration = Duration::from_secs(1);
/// How long a pack is left alone after emptying it failed, unless somebody asks.
const RETRY: Duration = Duration::from_secs(300);

/// What the thread is asked to do, and what it has done.
#[derive(Debug, Default)]
pub(crate) struct Control {
    state: Mutex<State>,
    wake: Condvar,
    /// Signalled when a pass has ended.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    stop: bool,
    /// Rewrite everything of which less than so many percent is alive.
    requested: Option<u64>,
    running: bool,
    /// Passes that have ended so far.
    passes: u64,
    /// The last pass failed.
    failed: bool,
    /// Packs that could not be emptied, and since when.
    stuck: BTreeMap<u64, Instant>,
    #[cfg(test)]
    trap: bool,
}

/// What became of collecting garbage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collecting {
    /// Packs are being rewritten, or are going to be because somebody asked for it.
    Running,
    /// The last pass did what there was to do.
    Idle,
    /// The last pass broke off; the log says why.
    Failed,
}

impl Control {
    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.wake.notify_all();
        self.ended.notify_all();
    }

    /// Asks for a pass over all packs, also those that are being appended to.
    pub(crate) fn ask(&self, percent: u64) {
        self.state.lock().requested = Some(percent);
        self.wake.notify_all();
    }

    /// Asks for a pass and waits for its end.
    pub(crate) fn ask_and_wait(&self, percent: u64) {
        let mut state = self.state.lock();
        state.requested = Some(percent);
        // One that is under way may have passed by what has died since.
        let until = state.passes + 1 + u64::from(state.running);
        self.wake.notify_all();
        while state.passes < until && !state.stop {
            self.ended.wait(&mut state);
        }
    }

    fn is_stopped(&self) -> bool {
        self.state.lock().stop
    }

    /// What to do next; `None` to end. The inner option is the percentage that was asked for.
    fn next(&self) -> Option<Option<u64>> {
        let mut state = self.state.lock();
        if std::mem::take(&mut state.running) {
            state.passes += 1;
            self.ended.notify_all();
        }
        if !state.stop && state.requested.is_none() {
            self.wake.wait_for(&mut state, TICK);
        }
        if state.stop {
            return None;
        }
        state.running = true;
        Some(state.requested.take())
    }

    /// Notes that a pack could not be emptied.
    fn note_stuck(&self, pack: u64) {
        self.state.lock().stuck.insert(pack, Instant::now());
    }

    /// Packs that are better left alone.
    pub(crate) fn stuck(&self, now: Instant) -> BTreeSet<u64> {
        let mut state = self.state.lock();
        state
            .stuck
            .retain(|_, since| now.saturating_duration_since(*since) < RETRY);
        state.stuck.keys().copied().collect()
    }

    /// Notes how a pass ended.
    fn note(&self, failed: bool) {
        self.state.lock().failed = failed;
    }
}

impl Store {
    /// Asks for packs to be rewritten of which less than `percent` is alive.
    pub fn collect(&self, percent: u64) {
        self.inner.collector.ask(percent);
    }

    /// What collecting does, and how it ended.
    #[must_use]
    pub fn collecting(&self) -> Collecting {
        let state = self.inner.collector.state.lock();
        match *state {
            _ if state.requested.is_some() || state.running => Collecting::Running,
            _ if state.failed => Collecting::Failed,
            _ => Collecting::Idle,
        }
    }

    /// Stored bytes that nothing needs any more, in packs that do not grow.
    #[must_use]
    pub fn garbage(&self) -> u64 {
        let packs = &self.inner.frames.packs;
        packs
            .live()
            .into_iter()
            .filter(|&(pack, _)| packs.is_quiet(pack))
            .filter_map(|(pack, live)| Some(packs.len(pack).ok()?.saturating_sub(live)))
            .sum()
    }
}

pub(crate) fn work(inner: &Inner) {
    set_priority(Priority::Low);
    while let Some(percent) = inner.collector.next() {
        inner.notice_move();
        if inner.is_removed() {
            if percent.is_some() {
                inner.collector.note(true);
            }
            continue;
        }
        let pass = AssertUnwindSafe(|| pass(inner, percent, &mut FrameEncoder::new()));
        let failed = match catch_unwind(pass) {
            Ok(Ok(false)) => continue,
            Ok(Ok(true)) => false,
            Ok(Err(e)) => {
                tracing::warn!("collecting garbage is put off: {}", inner.explain(&e));
                true
            }
            Err(_) => {
                tracing::error!("collecting garbage panicked; please report this");
                true
            }
        };
        inner.collector.note(failed);
        if failed {
            inner.frames.packs.counters.collections_failed.one();
        }
    }
}

/// Returns whether there was a reason to look.
fn pass(inner: &Inner, percent: Option<u64>, encoder: &mut FrameEncoder) -> Result<bool, Error> {
    #[cfg(test)]
    inner.collector.fall_into_trap(percent);
    if percent.is_some() {
        // What has been written so far takes part.
        inner.frames.packs.roll();
        inner.committer.run()?;
    } else if !inner.frames.packs.take_shrunk() {
        return Ok(false);
    }
    let mut left_out = match percent {
        Some(_) => BTreeSet::new(),
        None => inner.collector.stuck(Instant::now()),
    };
    let mut failed = None;
    while !inner.collector.is_stopped() && inner.check().is_ok() {
        let Some(pack) = inner.worst_pack(percent, &left_out)? else {
            return failed.map_or(Ok(true), Err);
        };
        let live = inner.frames.packs.live().get(&pack).copied();
        match inner.rewrite(pack, encoder) {
            Ok(()) => {}
            // All of it has died meanwhile.
            Err(e) if e.is_gone() && inner.frames.packs.is_dead(pack) => continue,
            // More had to be copied than is alive. There may be room for what another needs.
            Err(e) if e.is_full() => {
                failed.get_or_insert(e);
                left_out.insert(pack);
                continue;
            }
            // What cannot be read cannot be moved; the other packs are not to suffer from that.
            Err(e) => {
                tracing::warn!(
                    "{} is not emptied: {}",
                    PackId(pack).path().display(),
                    inner.explain(&e)
                );
                inner.damage.note_error(&e);
                failed.get_or_insert(e);
                left_out.insert(pack);
                inner.collector.note_stuck(pack);
                continue;
            }
        }
        let counters = &inner.frames.packs.counters;
        counters.packs_rewritten.one();
        counters.bytes_rewritten.add(live.unwrap_or(0));
        // The committer deletes it, once that is durable.
        inner.committer.run()?;
        if inner
            .frames
            .packs
            .live()
            .get(&pack)
            .is_some_and(|&live| live > 0)
        {
            // Something in it cannot be moved: do not try for ever, and go on with the others.
            left_out.insert(pack);
        }
    }
    inner.check()?;
    Ok(true)
}

#[cfg(test)]
impl Control {
    /// Makes the next pass that is asked for panic.
    pub(crate) fn set_trap(&self) {
        self.state.lock().trap = true;
    }

    fn fall_into_trap(&self, percent: Option<u64>) {
        let sprung = percent.is_some() && std::mem::take(&mut self.state.lock().trap);
        assert!(!sprung, "a trap");
    }
}
