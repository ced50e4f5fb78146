//! Requests for a cycle of the committer, and waiting for one.

use std::time::{Duration, Instant};

use crate::Error;
use crate::primitives::{Condvar, Mutex};

/// How often everything that is ready is committed and made durable.
const TICK: Duration = Duration::from_millis(500);
/// Bytes that wait to be committed before a tick is due: their memory is soon used again instead
/// of ever more of it, which costs a page fault every 4 KiB the first time.
const COMMIT_BYTES: u64 = 32 << 20;

/// Wakes the committer and waits for it.
#[derive(Debug, Default)]
pub(crate) struct CommitControl {
    state: Mutex<ControlState>,
    wake: Condvar,
    done: Condvar,
}

#[derive(Debug, Default)]
struct ControlState {
    /// Cycles begun and ended so far.
    begun: u64,
    ended: u64,
    /// A caller waits for a durable cycle.
    requested: bool,
    /// There is something to commit before the next tick.
    kicked: bool,
    /// Writers are waiting for memory.
    pressed: bool,
    /// Bytes that became ready to be committed since a cycle began.
    ready: u64,
    stop: bool,
    stopped: bool,
}

/// Why the committer runs a cycle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reason {
    pub(crate) durable: bool,
    pub(crate) pressed: bool,
}

impl CommitControl {
    /// There is something to commit.
    pub(crate) fn kick(&self) {
        self.state.lock().kicked = true;
        self.wake.notify_one();
    }

    /// Adds to the bytes that are ready to be committed.
    pub(crate) fn ready(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.ready += bytes;
        if state.ready >= COMMIT_BYTES {
            state.kicked = true;
            self.wake.notify_one();
        }
    }

    /// There is something to do for which everything must be durable first.
    pub(crate) fn kick_durable(&self) {
        self.state.lock().requested = true;
        self.wake.notify_one();
    }

    /// Writers wait for memory: write partial chunks as well.
    pub(crate) fn press(&self) {
        self.state.lock().pressed = true;
        self.wake.notify_one();
    }

    /// Waits for a cycle that begins after this call and is durable.
    pub(crate) fn run(&self) -> Result<(), Error> {
        let mut state = self.state.lock();
        let ticket = state.begun + 1;
        state.requested = true;
        self.wake.notify_one();
        while state.ended < ticket {
            if state.stopped {
                return Err(Error::Poisoned);
            }
            self.done.wait(&mut state);
        }
        Ok(())
    }

    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.wake.notify_one();
    }

    /// Waits for a reason to run a cycle; `None` to end.
    pub(crate) fn next(&self) -> Option<Reason> {
        let mut state = self.state.lock();
        let deadline = Instant::now() + TICK;
        let mut ticked = false;
        while !(state.stop || state.requested || state.kicked || state.pressed || ticked) {
            ticked = self.wake.wait_until(&mut state, deadline).timed_out();
        }
        if state.stop {
            return None;
        }
        state.begun += 1;
        state.kicked = false;
        state.ready = 0;
        Some(Reason {
            durable: std::mem::take(&mut state.requested) || ticked,
            pressed: std::mem::take(&mut state.pressed),
        })
    }

    /// A cycle has ended.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.ended = state.begun;
        self.done.notify_all();
    }

    /// There will be no other cycle.
    pub(crate) fn stopped(&self) {
        self.state.lock().stopped = true;
        self.done.notify_all();
    }
}
