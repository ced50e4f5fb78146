//! What can happen to the requests of one client.

use std::collections::VecDeque;

use super::unavailable;
use crate::engine::replicated::server::{RawTxn, ServerError};
use crate::primitives::{Condvar, Mutex};

/// What happens to one request. Requests that are no transactions are not executed late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It never arrives, which the client does not learn.
    LoseRequest,
    /// It is executed, and the answer is lost.
    LoseAnswer,
    /// The client gets no answer; it is executed after this number of further requests.
    Delay(u64),
    /// It is executed, and once more after this number of further requests.
    Twice(u64),
    /// It is turned away.
    Unavailable,
}

/// A request that is still under way.
#[derive(Debug)]
pub(super) struct Late {
    pub(super) txn: RawTxn,
    /// The number of requests after which it arrives.
    pub(super) due: u64,
}

/// What the requests of one client suffer.
#[derive(Debug, Default)]
pub(super) struct Client {
    state: Mutex<State>,
    thawed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    next: VecDeque<Fault>,
    random: Option<Random>,
    disconnected: bool,
    frozen: bool,
    held: usize,
    suffered: u64,
}

/// Random numbers that a seed determines.
#[derive(Clone, Debug)]
pub(super) struct Random {
    state: u64,
    per_mille: u32,
}

impl Random {
    pub(super) fn new(seed: u64, per_mille: u32) -> Self {
        Self {
            state: seed,
            per_mille,
        }
    }

    /// A number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    pub(super) fn strikes(&mut self) -> bool {
        self.below(1000) < self.per_mille.into()
    }

    fn fault(&mut self) -> Fault {
        match self.below(5) {
            0 => Fault::LoseRequest,
            1 => Fault::LoseAnswer,
            2 => Fault::Delay(1 + self.below(20)),
            3 => Fault::Twice(1 + self.below(20)),
            _ => Fault::Unavailable,
        }
    }
}

impl Client {
    pub(super) fn inject(&self, faults: impl IntoIterator<Item = Fault>) {
        self.state.lock().next.extend(faults);
    }

    pub(super) fn inject_randomly(&self, seed: u64, per_mille: u32) {
        self.state.lock().random = Some(Random::new(seed, per_mille));
    }

    pub(super) fn disconnect(&self, disconnected: bool) {
        self.state.lock().disconnected = disconnected;
    }

    pub(super) fn freeze(&self, frozen: bool) {
        self.state.lock().frozen = frozen;
        self.thawed.notify_all();
    }

    pub(super) fn held(&self) -> usize {
        self.state.lock().held
    }

    pub(super) fn suffered(&self) -> u64 {
        self.state.lock().suffered
    }

    /// Waits while the client is frozen, and refuses while it is disconnected.
    pub(super) fn arrive(&self) -> Result<(), ServerError> {
        let mut state = self.state.lock();
        state.held += 1;
        while state.frozen {
            self.thawed.wait(&mut state);
        }
        state.held -= 1;
        if state.disconnected {
            return Err(unavailable());
        }
        Ok(())
    }

    pub(super) fn next_fault(&self) -> Option<Fault> {
        let mut state = self.state.lock();
        let fault = state.next.pop_front().or_else(|| {
            let random = state.random.as_mut()?;
            random.strikes().then(|| random.fault())
        });
        state.suffered += u64::from(fault.is_some());
        fault
    }
}
