//! Requests to the background pass, its state, and the results of the requests.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use parking_lot::{Condvar, Mutex};
use shale_index::Ino;

/// How often the thread looks for quiet files.
const TICK: Duration = Duration::from_secs(1);
/// Failed requests that are remembered; the oldest are forgotten.
const REMEMBERED: usize = 1 << 16;

/// The requests to the settling thread, and its state.
#[derive(Default)]
pub(crate) struct SettleControl {
    state: Mutex<State>,
    wake: Condvar,
    /// Raw bytes of the current file that have been processed.
    done: AtomicU64,
    /// When the bytes processed so far were due, at the rate.
    due: Mutex<Option<Instant>>,
    /// Notified of files whose attributes have changed without a request of the kernel.
    listener: OnceLock<ChangeListener>,
}

/// Called with the number of an inode, by the thread that settles and with no lock held.
pub(crate) type ChangeListener = Box<dyn Fn(u64) + Send + Sync>;

/// A request of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SettleRequest {
    /// Settle it, if it is not settled.
    Settle,
    /// Encode all of it again, by the policy in effect now.
    Rewrite,
}

/// The result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SettleOutcome {
    /// It was done, or there was nothing to do.
    Done,
    /// Left alone or given up, because the file is being written.
    Busy,
    /// gc removed a pack while it was being read.
    Moved,
    /// The device has no room for it.
    NoSpace,
    /// A program cancelled it.
    Cancelled,
    /// It failed with this errno.
    Failed(i32),
}

impl fmt::Display for SettleOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::Busy => f.write_str("busy"),
            Self::Cancelled => f.write_str("cancelled"),
            Self::NoSpace => write!(f, "failed: {}", Errno::ENOSPC.desc()),
            Self::Moved => write!(f, "failed: {}", Errno::EIO.desc()),
            Self::Failed(errno) => write!(f, "failed: {}", Errno::from_raw(*errno).desc()),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    stop: bool,
    requested: BTreeMap<Ino, SettleRequest>,
    /// Files that are being settled or wait for their batch.
    working: BTreeMap<Ino, Working>,
    /// The one that is being encoded.
    current: Option<u64>,
    refused: Refused,
}

/// A file that is being settled.
#[derive(Debug, Default)]
struct Working {
    /// Raw bytes, once it is encoded.
    done: u64,
    /// A program asked for it, and has not cancelled that.
    asked: bool,
    cancelled: bool,
}

/// Requests that were not done, the last one for each file.
#[derive(Debug, Default)]
struct Refused {
    /// Time and result, by inode.
    outcomes: HashMap<Ino, (u64, SettleOutcome)>,
    /// Inodes by time.
    order: BTreeMap<u64, u64>,
    clock: u64,
}

impl Refused {
    fn forget(&mut self, ino: Ino) {
        if let Some((when, _)) = self.outcomes.remove(&ino) {
            self.order.remove(&when);
        }
    }

    fn note(&mut self, ino: Ino, outcome: SettleOutcome) {
        self.forget(ino);
        if self.outcomes.len() >= REMEMBERED
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.outcomes.remove(&oldest);
        }
        self.clock += 1;
        self.order.insert(self.clock, ino);
        self.outcomes.insert(ino, (self.clock, outcome));
    }
}

impl fmt::Debug for SettleControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SettleControl")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl SettleControl {
    /// Counts bytes of the current file; returns when they may be processed so that the rate is
    /// kept, over all files.
    pub(crate) fn schedule(&self, bytes: u64, rate: u64) -> Instant {
        self.done.fetch_add(bytes, Ordering::Relaxed);
        let now = Instant::now();
        let mut due = self.due.lock();
        let begin = due.map_or(now, |due| due.max(now));
        let takes = Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
        *due = begin.checked_add(takes).or(*due);
        begin
    }

    /// Sets the listener for changes. The first one stays.
    pub(crate) fn listen(&self, listener: ChangeListener) {
        let _ = self.listener.set(listener);
    }

    /// Tells the listener that attributes of a file have changed.
    pub(crate) fn changed(&self, ino: Ino) {
        if let Some(listener) = self.listener.get() {
            listener(ino);
        }
    }

    /// The next task, after a pause if there was none; `None` to end. A request is preferred to the
    /// list.
    pub(crate) fn next(&self, pause: bool) -> Option<Option<(u64, SettleRequest)>> {
        let mut state = self.state.lock();
        if pause && !state.stop && state.requested.is_empty() {
            self.wake.wait_for(&mut state, TICK);
        }
        if state.stop {
            return None;
        }
        let Some((&ino, &request)) = state.requested.first_key_value() else {
            return Some(None);
        };
        // Requested again while it waits for its batch, which has to be committed first.
        if state.working.contains_key(&ino) {
            return Some(None);
        }
        state.requested.remove(&ino);
        let working = Working {
            asked: true,
            ..Working::default()
        };
        state.working.insert(ino, working);
        Some(Some((ino, request)))
    }

    /// Begins to work on a file.
    pub(crate) fn begin(&self, ino: Ino) {
        let mut state = self.state.lock();
        state.working.entry(ino).or_default().done = 0;
        state.current = Some(ino);
        self.done.store(0, Ordering::Relaxed);
    }

    /// The file is encoded, and waits for its batch.
    pub(crate) fn encoded(&self, ino: Ino) {
        let mut state = self.state.lock();
        state.working.entry(ino).or_default().done = self.done.load(Ordering::Relaxed);
        state.current = None;
    }

    /// Ends the work on a file, and remembers the result of the last request for it.
    pub(crate) fn end(&self, ino: Ino, outcome: Option<SettleOutcome>) {
        let mut state = self.state.lock();
        match outcome {
            Some(SettleOutcome::Done) => state.refused.forget(ino),
            Some(outcome) => state.refused.note(ino, outcome),
            None => {}
        }
        state.working.remove(&ino);
        state.current = state.current.filter(|&current| current != ino);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.state.lock().stop
    }

    /// Whether work on a file has to end.
    pub(crate) fn is_over(&self, ino: Ino) -> bool {
        let state = self.state.lock();
        state.stop || state.working.get(&ino).is_some_and(|it| it.cancelled)
    }

    /// Whether work on a file has to end because a program cancelled it.
    pub(crate) fn is_cancelled(&self, ino: Ino) -> bool {
        let state = self.state.lock();
        state.working.get(&ino).is_some_and(|it| it.cancelled)
    }

    /// Files that a program requested and that are not done yet.
    pub(crate) fn asked(&self) -> Vec<Ino> {
        let state = self.state.lock();
        let working = state.working.iter().filter(|(_, it)| it.asked);
        let working = working.map(|(&ino, _)| ino);
        working.chain(state.requested.keys().copied()).collect()
    }

    /// Removes files from the queue, and gives up those that are being encoded on request. A file
    /// that waits for its batch will be done in a moment.
    pub(crate) fn cancel(&self, inodes: &[Ino]) {
        let mut state = self.state.lock();
        for &ino in inodes {
            if state.requested.remove(&ino).is_some() {
                state.refused.note(ino, SettleOutcome::Cancelled);
            }
            if let Some(working) = state.working.get_mut(&ino).filter(|it| it.asked) {
                working.cancelled = true;
            }
        }
    }

    /// Requests that a file be settled soon.
    pub(crate) fn request(&self, ino: Ino, request: SettleRequest) {
        let mut state = self.state.lock();
        state.refused.forget(ino);
        let asked = state.requested.entry(ino).or_insert(request);
        *asked = request.max(*asked);
        drop(state);
        self.wake.notify_all();
    }

    /// The result of the last request to settle a file.
    pub(crate) fn outcome(&self, ino: Ino) -> SettleOutcome {
        let state = self.state.lock();
        let refused = state.refused.outcomes.get(&ino);
        refused.map_or(SettleOutcome::Done, |&(_, outcome)| outcome)
    }

    /// The file that is being settled, and the number of requested files.
    pub(crate) fn now(&self) -> (Option<u64>, u64) {
        let state = self.state.lock();
        let current = state
            .current
            .or_else(|| state.working.keys().next().copied());
        (current, state.requested.len() as u64)
    }

    /// Raw bytes of a file that have been processed, while it is being settled.
    pub(crate) fn progress(&self, ino: Ino) -> u64 {
        let state = self.state.lock();
        if state.current == Some(ino) {
            self.done.load(Ordering::Relaxed)
        } else {
            state.working.get(&ino).map_or(0, |working| working.done)
        }
    }

    /// Whether a file is being settled or will be on request.
    pub(crate) fn is_settling(&self, ino: Ino) -> bool {
        let state = self.state.lock();
        state.working.contains_key(&ino) || state.requested.contains_key(&ino)
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.wake.notify_all();
    }

    /// Whether a request waits.
    pub(crate) fn is_asked(&self) -> bool {
        !self.state.lock().requested.is_empty()
    }
}

#[cfg(test)]
impl SettleControl {
    pub(crate) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_refusals_are_remembered_and_the_oldest_go_first() {
        let control = SettleControl::default();
        for ino in 0..REMEMBERED as u64 + 10 {
            control.end(ino, Some(SettleOutcome::Busy));
        }
        control.end(20, Some(SettleOutcome::Done));
        control.end(30, Some(SettleOutcome::NoSpace));
        let state = control.state.lock();
        let refused = &state.refused;
        assert_eq!(refused.outcomes.len(), REMEMBERED - 1);
        assert_eq!(refused.order.len(), REMEMBERED - 1);
        assert!(!refused.outcomes.contains_key(&9));
        assert!(refused.outcomes.contains_key(&10));
        assert!(!refused.outcomes.contains_key(&20));
        assert_eq!(refused.outcomes[&30].1, SettleOutcome::NoSpace);
    }
}
