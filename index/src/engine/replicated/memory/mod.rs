//! A server in memory, for tests: etcd's semantics, limits and refusals, and faults on request.
//!
//! Many clients share one state with its whole history. Time passes only when a test says so, and
//! so do leases end. What a client's requests suffer is its own ([`Fault`]); what watches suffer
//! holds for all.

mod faults;
mod history;
mod watches;

use std::sync::Arc;
use std::time::Duration;

pub use faults::Fault;
use faults::{Client, Late};
use history::History;
use watches::Watches;

use super::server::{EventSink, LeaseId, RawAnswer, RawOp, RawTxn, Revision, Server, ServerError};
use crate::kv::{KeyRange, Limits};
use crate::primitives::Mutex;

/// What etcd takes by default.
const LIMITS: Limits = Limits {
    compares: 128,
    ops: 128,
    bytes: 3 << 19,
};

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    watches: Watches,
    limits: Limits,
}

#[derive(Debug)]
struct State {
    history: History,
    /// Requests that arrive later than their clients think.
    late: Vec<Late>,
    /// Requests that have arrived so far.
    requests: u64,
    full: bool,
    /// Keepalives of leases that have ended succeed, as with some versions of etcd.
    lies_about_leases: bool,
}

/// A server, as one client reaches it.
#[derive(Clone, Debug)]
pub struct MemoryServer {
    shared: Arc<Shared>,
    client: Arc<Client>,
}

impl Default for MemoryServer {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryServer {
    /// A server without keys, with etcd's limits.
    #[must_use]
    pub fn new() -> Self {
        Self::with_limits(LIMITS)
    }

    /// A server without keys.
    #[must_use]
    pub fn with_limits(limits: Limits) -> Self {
        let state = State {
            history: History::default(),
            late: Vec::new(),
            requests: 0,
            full: false,
            lies_about_leases: false,
        };
        let shared = Shared {
            state: Mutex::new(state),
            watches: Watches::default(),
            limits,
        };
        Self {
            shared: Arc::new(shared),
            client: Arc::default(),
        }
    }

    /// Another client of the same server, without faults.
    #[must_use]
    pub fn client(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            client: Arc::default(),
        }
    }

    /// The next requests of this client suffer these faults, one each.
    pub fn inject(&self, faults: impl IntoIterator<Item = Fault>) {
        self.client.inject(faults);
    }

    /// From now on, `per_mille` of this client's requests suffer a random fault.
    pub fn inject_randomly(&self, seed: u64, per_mille: u32) {
        self.client.inject_randomly(seed, per_mille);
    }

    /// This client reaches no server until it is connected again.
    pub fn disconnect(&self, disconnected: bool) {
        self.client.disconnect(disconnected);
    }

    /// Holds all requests of this client, before they arrive.
    pub fn freeze(&self) {
        self.client.freeze(true);
    }

    /// Releases what was held.
    pub fn thaw(&self) {
        self.client.freeze(false);
    }

    /// Requests of this client that are held.
    #[must_use]
    pub fn held(&self) -> usize {
        self.client.held()
    }

    /// Faults that this client has suffered.
    #[must_use]
    pub fn suffered(&self) -> u64 {
        self.client.suffered()
    }

    /// Requests of all clients that have arrived.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.shared.state.lock().requests
    }

    /// The newest revision.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.shared.state.lock().history.revision
    }

    /// Lets time pass for leases.
    pub fn pass(&self, time: Duration) {
        self.change(|state| state.history.pass(time));
    }

    /// Ends a lease at once, as an administrator would.
    pub fn expire(&self, lease: LeaseId) {
        self.change(|state| state.history.end_lease(lease).unwrap_or_default());
    }

    /// Forgets all revisions before the newest.
    pub fn compact(&self) {
        self.shared.state.lock().history.compact();
    }

    /// Delivers every request that is late.
    pub fn deliver(&self) {
        self.change(|state| state.deliver(u64::MAX));
    }

    /// Takes deletions only.
    pub fn set_full(&self, full: bool) {
        self.shared.state.lock().full = full;
    }

    /// Keepalives succeed although the lease has ended.
    pub fn lie_about_leases(&self) {
        self.shared.state.lock().lies_about_leases = true;
    }

    /// Holds what watches say, until this is called with `false`.
    pub fn lag_watches(&self, lag: bool) {
        self.shared.watches.lag(lag);
    }

    /// Loses what watches say, until this is called with `false`; then they report a gap.
    pub fn break_watches(&self, broken: bool) {
        self.shared.watches.break_off(broken);
    }

    /// From now on, watches say some things twice, and report gaps in place of others.
    pub fn confuse_watches(&self, seed: u64) {
        self.shared.watches.confuse(seed);
    }

    /// Executes something, then tells watches of the keys that it changed.
    fn change(&self, body: impl FnOnce(&mut State) -> Vec<(Vec<u8>, Revision)>) {
        let changed = body(&mut self.shared.state.lock());
        self.shared.watches.tell(&changed);
    }

    /// A request that has arrived.
    fn execute(&self, txn: &RawTxn) -> Result<RawAnswer, ServerError> {
        let (answer, changed) = {
            let mut state = self.shared.state.lock();
            state.execute(txn, &self.shared.limits)?
        };
        self.shared.watches.tell(&changed);
        Ok(answer)
    }

    /// Lets a request of this client arrive, unless it does not.
    fn arrive(&self) -> Result<Option<Fault>, ServerError> {
        self.client.arrive()?;
        self.change(|state| {
            state.requests += 1;
            state.deliver(state.requests)
        });
        Ok(self.client.next_fault())
    }

    /// A request that is harmless when it is executed twice or late.
    fn simple<T>(
        &self,
        body: impl FnOnce(&mut State) -> Result<T, ServerError>,
    ) -> Result<T, ServerError> {
        match self.arrive()? {
            None | Some(Fault::Twice(_)) => body(&mut self.shared.state.lock()),
            Some(Fault::LoseAnswer) => {
                body(&mut self.shared.state.lock())?;
                Err(lost())
            }
            Some(Fault::LoseRequest | Fault::Delay(_)) => Err(lost()),
            Some(Fault::Unavailable) => Err(unavailable()),
        }
    }
}

fn lost() -> ServerError {
    ServerError::Unknown("a test has lost the answer".into())
}

fn unavailable() -> ServerError {
    ServerError::Unavailable("a test has turned the request away".into())
}

type Changed = Vec<(Vec<u8>, Revision)>;

impl State {
    fn execute(
        &mut self,
        txn: &RawTxn,
        limits: &Limits,
    ) -> Result<(RawAnswer, Changed), ServerError> {
        history::check(txn, limits)?;
        let puts = txn.ops.iter().any(|op| matches!(op, RawOp::Put { .. }));
        if self.full && puts {
            return Err(ServerError::Full);
        }
        self.history.execute(txn)
    }

    /// Executes late requests that are due. Their answers are dropped.
    fn deliver(&mut self, now: u64) -> Changed {
        let mut changed = Vec::new();
        while let Some(at) = self.late.iter().position(|late| late.due <= now) {
            let late = self.late.remove(at);
            if let Ok((_, keys)) = self.execute(&late.txn, &LIMITS) {
                changed.extend(keys);
            }
        }
        changed
    }
}

impl Server for MemoryServer {
    fn txn(&self, txn: &RawTxn, _patience: Duration) -> Result<RawAnswer, ServerError> {
        let postpone = |requests: u64| {
            let mut state = self.shared.state.lock();
            let due = state.requests.saturating_add(requests.max(1));
            let txn = txn.clone();
            state.late.push(Late { txn, due });
        };
        match self.arrive()? {
            None => self.execute(txn),
            Some(Fault::Unavailable) => Err(unavailable()),
            Some(Fault::LoseRequest) => Err(lost()),
            Some(Fault::LoseAnswer) => {
                let _ = self.execute(txn);
                Err(lost())
            }
            Some(Fault::Delay(requests)) => {
                postpone(requests);
                Err(lost())
            }
            Some(Fault::Twice(requests)) => {
                let answer = self.execute(txn);
                postpone(requests);
                answer
            }
        }
    }

    fn grant(&self, ttl: Duration, _patience: Duration) -> Result<LeaseId, ServerError> {
        self.simple(|state| Ok(state.history.grant(ttl)))
    }

    fn keep_alive(&self, lease: LeaseId, _patience: Duration) -> Result<Duration, ServerError> {
        self.simple(|state| match state.history.keep_alive(lease) {
            Err(ServerError::LeaseGone) if state.lies_about_leases => Ok(Duration::from_secs(15)),
            answer => answer,
        })
    }

    fn revoke(&self, lease: LeaseId, _patience: Duration) -> Result<(), ServerError> {
        let mut changed = Vec::new();
        let answer = self.simple(|state| {
            changed = state.history.end_lease(lease)?;
            Ok(())
        });
        self.shared.watches.tell(&changed);
        answer
    }

    fn watch(
        &self,
        ranges: &[KeyRange],
        sink: EventSink,
    ) -> Result<Box<dyn std::any::Any + Send + Sync>, ServerError> {
        self.simple(|_| Ok(()))?;
        Ok(self.shared.watches.add(ranges, sink))
    }

    fn limits(&self) -> Limits {
        self.shared.limits
    }

    fn may_repeat(&self) -> bool {
        true
    }
}
