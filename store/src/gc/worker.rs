//! The gc thread: rewrites packs that are mostly garbage.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use shale_backing::failpoint::{Stage, reach_in};

use super::rewrite::Rewriter;
use super::select::worst_pack;
use crate::Error;
use crate::file::FileTable;
use crate::pack::PackId;
use crate::primitives::{Condvar, Mutex, Priority, set_priority};
use crate::volume::Volume;
use crate::write::{Admission, CommitControl, FREED_MIN, Reclaim};

/// How often it looks for packs without a request.
const TICK: Duration = Duration::from_secs(1);
/// A pack with more than this percentage live is not rewritten even when nothing else would make
/// room: directories and headers are not live, and copying does not remove them.
const LIVE_PERCENT_LAST: u64 = 97;
/// How long a pack is left alone after its rewrite failed, unless a pass is requested.
const RETRY: Duration = Duration::from_secs(300);

/// Requests to the thread, and its state.
#[derive(Debug, Default)]
pub(crate) struct GcControl {
    state: Mutex<ControlState>,
    wake: Condvar,
    /// Signalled when a pass has ended.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct ControlState {
    stop: bool,
    requested: Option<Request>,
    running: bool,
    /// Passes that have ended so far.
    passes: u64,
    /// The last pass failed.
    failed: bool,
    /// Packs that could not be rewritten, and since when.
    stuck: BTreeMap<PackId, Instant>,
}

/// The kind of a requested pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    /// Rewrite all packs less than this percentage live.
    Below(u64),
    /// Rewrite packs, the worst first, until there is room for this many more bytes of programs.
    Room(u64),
}

/// What gc does, or how its last pass ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GcState {
    /// Packs are being rewritten, or a pass was requested.
    Running,
    /// The last pass completed.
    Idle,
    /// The last pass stopped early; the log says why.
    Failed,
}

impl GcControl {
    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.wake.notify_all();
        self.ended.notify_all();
    }

    /// Requests a pass over all packs, also those that are being appended to.
    pub(crate) fn ask(&self, percent: u64) {
        self.state.lock().requested = Some(Request::Below(percent));
        self.wake.notify_all();
    }

    /// The state of the thread, or how its last pass ended.
    pub(crate) fn state(&self) -> GcState {
        let state = self.state.lock();
        match *state {
            _ if state.requested.is_some() || state.running => GcState::Running,
            _ if state.failed => GcState::Failed,
            _ => GcState::Idle,
        }
    }

    fn is_stopped(&self) -> bool {
        self.state.lock().stop
    }

    /// The next task; `None` to end. The inner option is the request.
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

    /// Notes that a pack could not be rewritten.
    fn note_stuck(&self, pack: PackId) {
        self.state.lock().stuck.insert(pack, Instant::now());
    }

    /// Packs to leave alone.
    pub(crate) fn stuck(&self, now: Instant) -> BTreeSet<PackId> {
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

impl Reclaim for GcControl {
    /// Requests a pass that makes room, and waits for its end.
    fn make_room(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.requested.get_or_insert(Request::Room(bytes));
        // A running pass may have missed what has died since.
        let until = state.passes + 1 + u64::from(state.running);
        self.wake.notify_all();
        while state.passes < until && !state.stop {
            self.ended.wait(&mut state);
        }
    }
}

/// The gc thread.
pub(crate) struct GcWorker {
    volume: Arc<Volume>,
    files: Arc<FileTable>,
    admission: Arc<Admission>,
    commits: Arc<CommitControl>,
    control: Arc<GcControl>,
}

impl GcWorker {
    pub(crate) fn new(
        volume: &Arc<Volume>,
        files: &Arc<FileTable>,
        admission: &Arc<Admission>,
        commits: &Arc<CommitControl>,
        control: &Arc<GcControl>,
    ) -> Self {
        Self {
            volume: Arc::clone(volume),
            files: Arc::clone(files),
            admission: Arc::clone(admission),
            commits: Arc::clone(commits),
            control: Arc::clone(control),
        }
    }

    /// Runs passes until told to stop.
    pub(crate) fn run(self) {
        set_priority(Priority::Low);
        while let Some(request) = self.control.next() {
            self.volume.presence.notice_move(&*self.volume.backing);
            if self.volume.is_removed() {
                if request.is_some() {
                    self.control.note(true);
                }
                continue;
            }
            let failed = match catch_unwind(AssertUnwindSafe(|| self.pass(request))) {
                Ok(Ok(false)) => continue,
                Ok(Ok(true)) => false,
                Ok(Err(e)) => {
                    let why = self.volume.explain(&e);
                    tracing::warn!(
                        "gc postponed, retrying when packs hold more garbage: {why}; run `shale \
                         doctor` if it keeps failing"
                    );
                    true
                }
                Err(_) => {
                    tracing::error!("gc panicked; please report this with the log");
                    true
                }
            };
            self.control.note(failed);
            if failed {
                self.volume.stats.collections_failed.one();
            }
        }
    }

    /// Returns whether there was a reason to look.
    fn pass(&self, request: Option<Request>) -> Result<bool, Error> {
        let volume = &*self.volume;
        let packs = &volume.frames.packs;
        if request.is_some() {
            reach_in(Stage::GcBegins, volume.backing.root());
            // Everything written so far takes part.
            packs.roll();
            self.commits.run()?;
        } else if !packs.take_shrunk() {
            return Ok(false);
        }
        let percent = request.map(|request| match request {
            Request::Below(percent) => percent,
            Request::Room(_) => LIVE_PERCENT_LAST,
        });
        let mut left_out = match request {
            Some(_) => BTreeSet::new(),
            None => self.control.stuck(Instant::now()),
        };
        let known: BTreeSet<PackId> = packs.live().into_keys().collect();
        let mut rewriter = Rewriter::new(volume, &self.files);
        let mut failed = None;
        while !self.control.is_stopped() && volume.check().is_ok() {
            // Rewriting packs that this pass has written would gain nothing.
            let written = packs.live().into_keys();
            left_out.extend(written.filter(|pack| !known.contains(pack)));
            let Some(pack) = worst_pack(volume, percent, &left_out)? else {
                return failed.map_or(Ok(true), Err);
            };
            let live = packs.live().get(&pack).copied();
            let before = volume.space.usable(&*volume.backing);
            match rewriter.rewrite(pack) {
                Ok(()) => {}
                // All of it has died meanwhile.
                Err(Error::PackGone { .. }) if packs.is_dead(pack) => continue,
                // More had to be copied than is live. There may be room for another pack.
                Err(e) if e.is_full() => {
                    failed.get_or_insert(e);
                    left_out.insert(pack);
                    continue;
                }
                // Unreadable frames cannot be moved; the other packs are rewritten all the same.
                Err(e) => {
                    self.note_stuck(pack, &e);
                    failed.get_or_insert(e);
                    left_out.insert(pack);
                    continue;
                }
            }
            let counters = &volume.stats;
            counters.packs_rewritten.one();
            counters.bytes_rewritten.add(live.unwrap_or(0));
            // The committer deletes the pack once that is durable.
            self.commits.run()?;
            if let Some(Request::Room(bytes)) = request {
                let usable = volume.space.usable(&*volume.backing);
                if usable < before + FREED_MIN || self.admission.cover(bytes).is_ok() {
                    return Ok(true);
                }
            }
            if packs.live().get(&pack).is_some_and(|&live| live > 0) {
                // Some of it cannot be moved: do not retry for ever, and continue with the others.
                left_out.insert(pack);
            }
        }
        volume.check()?;
        Ok(true)
    }

    fn note_stuck(&self, pack: PackId, error: &Error) {
        tracing::warn!(
            "{} cannot be rewritten and keeps its garbage; run `shale fsck` on the unmounted \
             store: {}",
            pack.path().display(),
            self.volume.explain(error)
        );
        self.files.damage.note_error(error);
        self.control.note_stuck(pack);
    }
}
