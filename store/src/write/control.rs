//! Requests for a cycle of the committer, and waiting for one.

use std::time::{Duration, Instant};

use crate::Error;
use crate::primitives::{Condvar, Mutex};

/// How often everything that is ready is committed and made durable.
const TICK: Duration = Duration::from_millis(500);
/// Bytes that may wait to be committed before the next tick: committing them early reuses their
/// memory instead of fresh memory, which costs a page fault every 4 KiB the first time.
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
    /// There is data to commit before the next tick.
    kicked: bool,
    /// Writers are waiting for memory.
    pressed: bool,
    /// Bytes that became ready to be committed since a cycle began.
    ready: u64,
    stop: bool,
    /// Why there will be no other cycle.
    over: Option<End>,
}

#[derive(Clone, Copy, Debug)]
enum End {
    ShutDown,
    Panic,
}

/// Why the committer runs a cycle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reason {
    pub(crate) durable: bool,
    pub(crate) pressed: bool,
}

impl CommitControl {
    /// There is data to commit.
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

    /// There is work that requires everything to be durable first.
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
            match state.over {
                Some(End::ShutDown) => return Err(Error::ShutDown),
                Some(End::Panic) => return Err(Error::Poisoned),
                None => {}
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

    /// There will be no further cycle.
    pub(crate) fn stopped(&self) {
        self.no_more(End::ShutDown);
    }

    /// There will be no other cycle: the committer panicked, and the store is poisoned.
    pub(crate) fn panicked(&self) {
        self.no_more(End::Panic);
    }

    fn no_more(&self, end: End) {
        self.state.lock().over = Some(end);
        self.done.notify_all();
    }
}
