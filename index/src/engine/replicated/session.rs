//! The life of a session: a lease that a thread keeps alive, and what happens at its end.
//!
//! A session ends once and for good: when a server says that its lease is gone, when a lane is
//! gone, when its lease may have run out by the local clock, or by `close`. The local clock only
//! makes a session end early, so that its process stops answering from memory; what protects the
//! state from a session that does not know of its end are the lanes. A keepalive that succeeds
//! proves nothing: some servers answer so for leases that are gone.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::link::{Failure, Link};
use super::server::{LeaseId, Revision, Server, ServerError};
use crate::kv::{EndListener, SessionState};
use crate::primitives::{Condvar, Mutex};

/// Time since the machine was started, including the time it was suspended.
pub(super) fn uptime() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    let secs = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::new(secs, u32::try_from(now.tv_nsec).unwrap_or(0))
}

#[derive(Clone, Debug)]
enum End {
    /// Not by `close`, and why.
    Lost(String),
    Closed,
}

struct State {
    /// The lease lasts until then at least, by `uptime`.
    until: Duration,
    end: Option<End>,
    listeners: Vec<EndListener>,
}

/// A session.
pub(super) struct Session {
    pub(super) lease: LeaseId,
    pub(super) number: Revision,
    state: Mutex<State>,
    changed: Condvar,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("lease", &self.lease)
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

impl Session {
    pub(super) fn new(lease: LeaseId, number: Revision, until: Duration) -> Self {
        let state = State {
            until,
            end: None,
            listeners: Vec::new(),
        };
        Self {
            lease,
            number,
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    fn finish(&self, end: End) {
        let mut state = self.state.lock();
        match (&state.end, &end) {
            (None, _) => {}
            // Its owner has let go of a session that was lost before.
            (Some(End::Lost(_)), End::Closed) => {
                state.end = Some(end);
                return;
            }
            _ => return,
        }
        let reason = match &end {
            End::Lost(reason) => Some(reason.clone()),
            End::Closed => None,
        };
        state.end = Some(end);
        let listeners = std::mem::take(&mut state.listeners);
        drop(state);
        self.changed.notify_all();
        if let Some(reason) = reason {
            tracing::warn!(
                session = self.number,
                reason,
                "the session with the metadata servers has ended"
            );
            for listener in listeners {
                listener(&reason);
            }
        }
    }

    /// Ends it, unless it has ended already.
    pub(super) fn end(&self, reason: &str) {
        self.finish(End::Lost(reason.to_owned()));
    }

    /// Ends it as its owner wants; listeners are not told.
    pub(super) fn close(&self) {
        self.finish(End::Closed);
    }

    /// Ends it if the lease may have run out.
    fn look_at_the_clock(&self) {
        let late = {
            let state = self.state.lock();
            state.end.is_none() && uptime() >= state.until
        };
        if late {
            self.end("no metadata server has answered for longer than the lease lasts");
        }
    }

    /// Why it has ended, if it has.
    pub(super) fn ended(&self) -> Option<String> {
        match self.check() {
            Ok(()) => None,
            Err(Failure::Ended(reason)) => Some(reason),
            Err(_) => Some("it was closed".into()),
        }
    }

    pub(super) fn check(&self) -> Result<(), Failure> {
        self.look_at_the_clock();
        match &self.state.lock().end {
            None => Ok(()),
            Some(End::Lost(reason)) => Err(Failure::Ended(reason.clone())),
            Some(End::Closed) => Err(Failure::Closed),
        }
    }

    /// Refuses only after `close`.
    pub(super) fn check_open(&self) -> Result<(), Failure> {
        match &self.state.lock().end {
            Some(End::Closed) => Err(Failure::Closed),
            _ => Ok(()),
        }
    }

    pub(super) fn state(&self) -> SessionState {
        match self.ended() {
            None => SessionState::Alive,
            Some(reason) => SessionState::Ended(reason),
        }
    }

    pub(super) fn on_end(&self, listener: EndListener) {
        let mut state = self.state.lock();
        let reason = match &state.end {
            None => return state.listeners.push(listener),
            Some(End::Closed) => return,
            Some(End::Lost(reason)) => reason.clone(),
        };
        drop(state);
        listener(&reason);
    }

    fn renewed(&self, until: Duration) {
        let mut state = self.state.lock();
        state.until = state.until.max(until);
    }

    /// How long the lease lasts for certain.
    pub(super) fn remaining(&self) -> Duration {
        self.state.lock().until.saturating_sub(uptime())
    }

    /// Waits for `pause`, or until the lease may have run out. False if the session has ended.
    fn wait(&self, pause: Duration) -> bool {
        let mut state = self.state.lock();
        let until = Instant::now() + pause.min(state.until.saturating_sub(uptime()));
        while state.end.is_none() {
            if self.changed.wait_until(&mut state, until).timed_out() {
                return state.end.is_none();
            }
        }
        false
    }
}

/// Keeps the lease of a session alive.
pub(super) struct Keeper<S> {
    pub(super) link: Arc<Link<S>>,
    pub(super) session: Arc<Session>,
}

impl<S: Server> Keeper<S> {
    /// Works until the session has ended.
    pub(super) fn run(self) {
        let every = self.link.options.ttl / 3;
        let mut pause = every;
        while self.session.wait(pause) {
            // A lease lasts from when the server heard of us, which is after we spoke.
            let sent = uptime();
            match self.link.server.keep_alive(self.session.lease, every) {
                Ok(ttl) => {
                    self.session.renewed(sent + ttl);
                    pause = every;
                }
                Err(ServerError::LeaseGone) => self.session.end("its lease has ended"),
                Err(error) => {
                    tracing::debug!(%error, "a keepalive failed");
                    pause = every / 4;
                }
            }
            self.session.look_at_the_clock();
        }
    }
}

#[cfg(test)]
#[cfg(not(feature = "shuttle"))]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn a_session_ends_once_and_tells_every_listener_once() {
        let session = Session::new(1, 1, uptime() + Duration::from_secs(60));
        let told = Arc::new(AtomicU32::new(0));
        let listener = || {
            let told = Arc::clone(&told);
            Box::new(move |_: &str| {
                told.fetch_add(1, Ordering::Relaxed);
            })
        };
        session.on_end(listener());
        assert_eq!(session.state(), SessionState::Alive);
        session.end("first");
        session.end("second");
        session.on_end(listener());
        assert_eq!(session.state(), SessionState::Ended("first".into()));
        assert_eq!(told.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_session_ends_by_the_local_clock_without_any_answer() {
        let session = Session::new(1, 1, uptime());
        assert!(matches!(session.check(), Err(Failure::Ended(_))));
    }

    #[test]
    fn close_tells_no_listener() {
        let session = Session::new(1, 1, uptime() + Duration::from_secs(60));
        session.on_end(Box::new(|_| panic!("told")));
        session.close();
        session.on_end(Box::new(|_| panic!("told")));
        assert_eq!(session.check(), Err(Failure::Closed));
    }
}
