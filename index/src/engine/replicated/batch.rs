//! Group commit: transactions that wait for a lane are merged.
//!
//! A caller puts its transaction into the queue. If a lane is free, the caller becomes a *leader*:
//! it takes the lane and the transaction at the front of the queue, merges later ones that none
//! of those taken touches, and sends them. Otherwise it waits until some leader has answered it,
//! or a lane is free. A merged transaction that does not hold is sent again one by one.
//!
//! Invariants:
//! 1. A transaction is in the queue, or with one leader, or answered.
//! 2. While a lane is free and the queue is not empty, a thread is awake that will lead. A leader
//!    that frees a lane, or takes one and leaves others, wakes the owner of the front.
//! 3. The lock is never held while a request is under way.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::lanes::Lane;
use super::link::{Failure, Link};
use super::server::Server;
use super::work::Work;
use crate::kv::{Limits, Outcome};
use crate::primitives::{Condvar, Mutex, MutexGuard};

/// Queued transactions that a leader looks at.
const LOOKED_AT: usize = 256;

type Verdict = Result<Outcome, Failure>;

/// A transaction, and the wake-up call of its owner.
#[derive(Debug)]
struct Pending {
    id: u64,
    work: Work,
    wake: Condvar,
}

#[derive(Debug)]
struct Waiting {
    pending: Arc<Pending>,
    /// Merged with others it did not hold.
    alone: bool,
}

#[derive(Debug)]
struct State {
    waiting: VecDeque<Waiting>,
    free: Vec<Lane>,
    answered: HashMap<u64, Verdict>,
    next: u64,
    /// Why no transaction is taken any more.
    refuses: Option<Failure>,
}

/// Transactions that wait for lanes, and lanes that wait for transactions.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    lanes: usize,
    /// A lane was freed and no transaction waits.
    quiet: Condvar,
}

impl Queue {
    pub(super) fn new(free: Vec<Lane>) -> Self {
        let lanes = free.len();
        let state = State {
            waiting: VecDeque::new(),
            free,
            answered: HashMap::new(),
            next: 0,
            refuses: None,
        };
        Self {
            state: Mutex::new(state),
            lanes,
            quiet: Condvar::new(),
        }
    }

    /// Executes a transaction, together with others if it has to wait.
    pub(super) fn commit<S: Server>(&self, link: &Link<S>, limits: &Limits, work: Work) -> Verdict {
        let mut state = self.state.lock();
        if let Some(failure) = &state.refuses {
            return Err(failure.clone());
        }
        state.next += 1;
        let pending = Arc::new(Pending {
            id: state.next,
            work,
            wake: Condvar::new(),
        });
        state.waiting.push_back(Waiting {
            pending: Arc::clone(&pending),
            alone: false,
        });
        loop {
            if let Some(verdict) = state.answered.remove(&pending.id) {
                return verdict;
            }
            let Some(mut flight) = Flight::take(self, &mut state, limits) else {
                pending.wake.wait(&mut state);
                continue;
            };
            state.wake_leader();
            drop(state);
            let verdicts = flight.run(link);
            state = flight.land(verdicts);
        }
    }

    /// Takes no transaction any more, and answers those that wait.
    pub(super) fn refuse(&self, failure: &Failure) {
        let mut state = self.state.lock();
        state.refuses.get_or_insert_with(|| failure.clone());
        while let Some(waiting) = state.waiting.pop_front() {
            state.answer(&waiting.pending, Err(failure.clone()));
        }
    }

    /// Waits until nothing is under way.
    pub(super) fn wait_until_quiet(&self) {
        let mut state = self.state.lock();
        while state.free.len() < self.lanes || !state.waiting.is_empty() {
            self.quiet.wait(&mut state);
        }
    }
}

impl State {
    fn wake_leader(&self) {
        if let Some(front) = self.waiting.front().filter(|_| !self.free.is_empty()) {
            front.pending.wake.notify_one();
        }
    }

    fn answer(&mut self, pending: &Pending, verdict: Verdict) {
        self.answered.insert(pending.id, verdict);
        pending.wake.notify_one();
    }

    /// The transaction at the front, and what can be merged with it.
    fn take_batch(&mut self, limits: &Limits) -> Vec<Waiting> {
        let Some(first) = self.waiting.pop_front() else {
            return Vec::new();
        };
        if first.alone || self.waiting.is_empty() {
            return vec![first];
        }
        let mut merged = first.pending.work.clone();
        let mut batch = vec![first];
        let mut at = 0;
        for _ in 0..LOOKED_AT.min(self.waiting.len()) {
            let waiting = &self.waiting[at];
            let work = &waiting.pending.work;
            if waiting.alone || !merged.fits_with(work, limits) || merged.touches(work) {
                at += 1;
                continue;
            }
            merged.merge(work);
            batch.extend(self.waiting.remove(at));
        }
        batch
    }
}

/// A lane and the transactions that are sent through it.
struct Flight<'a> {
    queue: &'a Queue,
    lane: Option<Lane>,
    batch: Vec<Waiting>,
}

impl<'a> Flight<'a> {
    fn take(queue: &'a Queue, state: &mut State, limits: &Limits) -> Option<Self> {
        if state.waiting.is_empty() {
            return None;
        }
        let lane = Some(state.free.pop()?);
        let batch = state.take_batch(limits);
        Some(Self { queue, lane, batch })
    }

    /// Sends the batch. `None` if it must be sent one by one.
    fn run<S: Server>(&mut self, link: &Link<S>) -> Option<Verdict> {
        let (lane, first) = self.lane.as_mut().zip(self.batch.first())?;
        if self.batch.len() == 1 {
            return Some(lane.execute(link, &first.pending.work));
        }
        let mut merged = Work::default();
        for waiting in &self.batch {
            merged.merge(&waiting.pending.work);
        }
        match lane.execute(link, &merged) {
            Ok(Outcome::Conflict) | Err(Failure::Refused(_) | Failure::Full) => None,
            verdict => Some(verdict),
        }
    }

    /// Frees the lane and answers the batch, or puts it back.
    fn land(mut self, verdict: Option<Verdict>) -> MutexGuard<'a, State> {
        let mut state = self.queue.state.lock();
        for Waiting { pending, .. } in self.batch.drain(..).rev() {
            match (&verdict, state.refuses.clone()) {
                (Some(verdict), _) => state.answer(&pending, verdict.clone()),
                (None, Some(failure)) => state.answer(&pending, Err(failure)),
                (None, None) => state.waiting.push_front(Waiting {
                    pending,
                    alone: true,
                }),
            }
        }
        state.free.extend(self.lane.take());
        state.wake_leader();
        self.queue.quiet.notify_all();
        state
    }
}

impl Drop for Flight<'_> {
    /// A leader that panics answers its batch all the same, so that no caller waits for ever.
    fn drop(&mut self) {
        if self.lane.is_none() {
            return;
        }
        let mut state = self.queue.state.lock();
        let failure = Failure::Unknown("a thread panicked while it committed".into());
        for Waiting { pending, .. } in self.batch.drain(..) {
            state.answer(&pending, Err(failure.clone()));
        }
        state.free.extend(self.lane.take());
        state.wake_leader();
        self.queue.quiet.notify_all();
    }
}
