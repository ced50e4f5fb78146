//! Memory of written chunks, kept for the next ones: fresh memory costs a page fault every
//! 4 KiB, a third of the time of a stream of writes.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::budget::Budget;
use crate::cache::fits;

/// How long memory is kept that nobody takes.
const IDLE: Duration = Duration::from_secs(5);

/// What is made ready before anybody writes, and kept for the next burst, at most.
const RESERVE: u64 = 64 << 20;
/// The same as a part of the budget.
const RESERVE_SHARE: u64 = 8;
/// Length of a chunk unless a policy says otherwise.
const CHUNK: usize = 1 << 20;

/// Buffers without contents. Together with unwritten data they stay within its budget.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    state: Mutex<State>,
}

fn reserve(budget: &Budget) -> u64 {
    RESERVE.min(budget.limit() / RESERVE_SHARE)
}

#[derive(Debug, Default)]
struct State {
    buffers: Vec<Vec<u8>>,
    bytes: u64,
    used: Option<Instant>,
}

impl Spare {
    /// Makes the reserve, unless somebody writes already and makes more and more of it anyway.
    pub(crate) fn fill(&self, budget: &Budget) {
        while self.state.lock().bytes + CHUNK as u64 <= reserve(budget) && budget.used() == 0 {
            let mut buffer = Vec::with_capacity(CHUNK);
            // Not zeros: memory that was never written has them without being there.
            buffer.resize(CHUNK, 1);
            self.put(std::hint::black_box(buffer), budget);
        }
    }

    /// A buffer with room for `len` bytes, if one is at hand; what it holds is of no meaning.
    pub(crate) fn take(&self, len: usize) -> Option<Vec<u8>> {
        let mut state = self.state.lock();
        state.used = Some(Instant::now());
        let at = state.buffers.iter().rposition(|buffer| fits(buffer, len))?;
        let buffer = state.buffers.swap_remove(at);
        state.bytes -= buffer.capacity() as u64;
        Some(buffer)
    }

    /// Keeps a buffer if the budget has room for it.
    pub(crate) fn put(&self, mut buffer: Vec<u8>, budget: &Budget) {
        let len = buffer.capacity() as u64;
        let mut state = self.state.lock();
        if state.bytes + len + budget.used() <= budget.limit() {
            buffer.clear();
            state.bytes += len;
            state.buffers.push(buffer);
        }
    }

    /// Frees what the budget has no room for any more; after a while without use only the reserve
    /// is left.
    pub(crate) fn trim(&self, budget: &Budget) {
        let mut state = self.state.lock();
        let mut room = budget.limit().saturating_sub(budget.used());
        let idle = state.used.is_none_or(|used| used.elapsed() >= IDLE);
        if idle {
            room = room.min(reserve(budget));
        }
        while state.bytes > room {
            let Some(buffer) = state.buffers.pop() else {
                break;
            };
            state.bytes -= buffer.capacity() as u64;
        }
        if state.buffers.is_empty() {
            state.buffers = Vec::new();
        }
        drop(state);
        if idle {
            self.fill(budget);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spare_memory_and_unwritten_data_share_one_budget() {
        let budget = Budget::new(100);
        let spare = Spare::default();
        spare.put(Vec::with_capacity(60), &budget);
        spare.put(Vec::with_capacity(60), &budget);
        assert!(spare.take(10).is_none(), "only buffers of the length asked");
        budget.take(50, || {}).unwrap();
        spare.trim(&budget);
        assert!(spare.take(60).is_none(), "the data needs the room");
    }

    #[test]
    fn the_reserve_is_there_before_anybody_writes_and_is_kept() {
        let budget = Budget::new(40 << 20);
        let spare = Spare::default();
        spare.fill(&budget);
        spare.put(Vec::with_capacity(CHUNK), &budget);
        spare.trim(&budget);
        let mut ready = Vec::new();
        while let Some(buffer) = spare.take(CHUNK) {
            ready.push(buffer);
        }
        assert_eq!(ready.len(), 5, "an eighth of the budget");
        assert!(ready.iter().all(Vec::is_empty));
    }

    #[test]
    fn a_buffer_comes_back_empty() {
        let budget = Budget::new(1000);
        let spare = Spare::default();
        let mut buffer = Vec::with_capacity(60);
        buffer.extend_from_slice(b"of somebody else");
        spare.put(buffer, &budget);
        let buffer = spare.take(60).unwrap();
        assert!(buffer.is_empty());
        assert!(spare.take(60).is_none());
    }
}
