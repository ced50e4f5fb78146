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
/// A pack of which more than so many percent is alive is not rewritten even when nothing else
/// would make room: directories and heads are not alive, and do not go by copying.
const LIVE_PERCENT_LAST: u64 = 97;
/// A pack that gives back less than this is not worth its copy.
pub(crate) const WORTH: u64 = 64 << 10;
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
    requested: Option<Request>,
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

/// What is asked of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    /// Rewrite everything of which less than so many percent is alive.
    Below(u64),
    /// Rewrite packs, the worst first, until there is room for so many more bytes of programs.
    Room(u64),
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
        self.state.lock().requested = Some(Request::Below(percent));
        self.wake.notify_all();
    }

    /// Asks for a pass that makes room, and waits for its end.
    pub(crate) fn ask_for_room(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.requested.get_or_insert(Request::Room(bytes));
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

    /// What to do next; `None` to end. The inner option is what was asked for.
    fn next(&self) -> Option<Option<Request>> {
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
    while let Some(request) = inner.collector.next() {
        inner.notice_move();
        if inner.is_removed() {
            if request.is_some() {
                inner.collector.note(true);
            }
            continue;
        }
        let pass = AssertUnwindSafe(|| pass(inner, request, &mut FrameEncoder::new()));
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
fn pass(
    inner: &Inner,
    request: Option<Request>,
    encoder: &mut FrameEncoder,
) -> Result<bool, Error> {
    #[cfg(test)]
    inner.collector.fall_into_trap(request);
    if request.is_some() {
        // What has been written so far takes part.
        inner.frames.packs.roll();
        inner.committer.run()?;
    } else if !inner.frames.packs.take_shrunk() {
        return Ok(false);
    }
    let percent = request.map(|request| match request {
        Request::Below(percent) => percent,
        Request::Room(_) => LIVE_PERCENT_LAST,
    });
    let mut left_out = match request {
        Some(_) => BTreeSet::new(),
        None => inner.collector.stuck(Instant::now()),
    };
    let known: BTreeSet<u64> = inner.frames.packs.live().into_keys().collect();
    let mut failed = None;
    while !inner.collector.is_stopped() && inner.check().is_ok() {
        // What this pass has written itself is not better the second time.
        let packs = inner.frames.packs.live().into_keys();
        left_out.extend(packs.filter(|pack| !known.contains(pack)));
        let Some(pack) = inner.worst_pack(percent, &left_out)? else {
            return failed.map_or(Ok(true), Err);
        };
        let live = inner.frames.packs.live().get(&pack).copied();
        let before = inner.space.usable(&*inner.backing);
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
        if let Some(Request::Room(bytes)) = request {
            let usable = inner.space.usable(&*inner.backing);
            if usable < before + WORTH || inner.cover(bytes).is_ok() {
                return Ok(true);
            }
        }
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

    fn fall_into_trap(&self, request: Option<Request>) {
        let sprung = request.is_some() && std::mem::take(&mut self.state.lock().trap);
        assert!(!sprung, "a trap");
    }
}
