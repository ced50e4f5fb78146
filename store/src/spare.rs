//! Memory of written chunks, kept for the next ones: fresh memory costs a page fault every
//! 4 KiB, a third of the time of a stream of writes.

use std::time::{Duration, Instant};

use crate::budget::Budget;
use crate::cache::{fits, fits_loosely};
use crate::sync::Mutex;

/// How long memory is kept that nobody takes.
const IDLE: Duration = Duration::from_secs(5);

/// Length of a chunk unless a policy says otherwise.
const CHUNK: usize = 1 << 20;
/// Room for a tile.
const TILE: usize = 512 << 10;
/// What is made ready before anybody writes or reads, and kept for the next burst: lengths of
/// buffers, and how many bytes of them at most, also as a part of the budget.
const RESERVE: [(usize, u64, u64); 2] = [(CHUNK, 64 << 20, 8), (TILE, 32 << 20, 16)];

/// Buffers without contents. Together with unwritten data they stay within its budget.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    state: Mutex<State>,
}

/// Lengths of buffers and how many of them are kept ready.
fn reserve(budget: &Budget) -> impl Iterator<Item = (usize, usize)> {
    let limit = budget.limit();
    RESERVE.into_iter().map(move |(len, most, share)| {
        let bytes = most.min(limit / share);
        (len, (bytes / len as u64) as usize)
    })
}

#[derive(Debug, Default)]
struct State {
    buffers: Vec<Vec<u8>>,
    bytes: u64,
    used: Option<Instant>,
}

impl State {
    fn take(&mut self, wanted: impl Fn(&Vec<u8>) -> bool) -> Option<Vec<u8>> {
        self.used = Some(Instant::now());
        let at = self.buffers.iter().rposition(wanted)?;
        let buffer = self.buffers.swap_remove(at);
        self.bytes -= buffer.capacity() as u64;
        Some(buffer)
    }

    fn count(&self, len: usize) -> usize {
        let of_len = |buffer: &&Vec<u8>| buffer.capacity() == len;
        self.buffers.iter().filter(of_len).count()
    }

    /// Frees all but some buffers of some lengths.
    fn keep(&mut self, wanted: impl Iterator<Item = (usize, usize)>) {
        let mut wanted: Vec<(usize, usize)> = wanted.collect();
        self.buffers.retain(|buffer| {
            let class = wanted.iter_mut().find(|(len, _)| *len == buffer.capacity());
            class.is_some_and(|(_, left)| {
                let kept = *left > 0;
                *left = left.saturating_sub(1);
                kept
            })
        });
        self.bytes = self
            .buffers
            .iter()
            .map(|buffer| buffer.capacity() as u64)
            .sum();
    }
}

impl Spare {
    /// Makes the reserve, unless somebody writes already and makes more and more of it anyway.
    pub(crate) fn fill(&self, budget: &Budget) {
        for (len, wanted) in reserve(budget) {
            while self.state.lock().count(len) < wanted && budget.used() == 0 {
                let mut buffer = Vec::with_capacity(len);
                // Not zeros: memory that was never written has them without being there.
                buffer.resize(len, 1);
                if !self.put(std::hint::black_box(buffer), budget) {
                    return;
                }
            }
        }
    }

    /// An empty buffer with room for a chunk of `len` bytes, if one is at hand.
    pub(crate) fn take(&self, len: usize) -> Option<Vec<u8>> {
        let mut buffer = self.state.lock().take(|buffer| fits(buffer, len))?;
        buffer.clear();
        Some(buffer)
    }

    /// A buffer for a frame of `len` bytes, if one is at hand, rather too large than fresh. It
    /// holds anything: whoever overwrites all of it need not clear it first.
    pub(crate) fn memory(&self, len: usize) -> Option<Vec<u8>> {
        let mut state = self.state.lock();
        state
            .take(|buffer| fits(buffer, len))
            .or_else(|| state.take(|buffer| fits_loosely(buffer, len)))
    }

    /// Keeps a buffer if the budget has room for it.
    pub(crate) fn put(&self, buffer: Vec<u8>, budget: &Budget) -> bool {
        let len = buffer.capacity() as u64;
        let mut state = self.state.lock();
        let room = state.bytes + len + budget.used() <= budget.limit();
        if room {
            state.bytes += len;
            state.buffers.push(buffer);
        }
        room
    }

    /// Frees what the budget has no room for any more; after a while without use only the reserve
    /// is left.
    pub(crate) fn trim(&self, budget: &Budget) {
        let mut state = self.state.lock();
        let room = budget.limit().saturating_sub(budget.used());
        let idle = state.used.is_none_or(|used| used.elapsed() >= IDLE);
        if idle {
            state.keep(reserve(budget));
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
        for (len, wanted) in [(CHUNK, 5), (TILE, 5)] {
            let mut ready = Vec::new();
            while let Some(buffer) = spare.take(len) {
                ready.push(buffer);
            }
            assert_eq!(
                ready.len(),
                wanted,
                "an eighth and a sixteenth of the budget"
            );
            assert!(ready.iter().all(Vec::is_empty));
        }
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

    #[test]
    fn a_frame_rather_takes_what_is_too_large_than_nothing() {
        let budget = Budget::new(1000);
        let spare = Spare::default();
        spare.put(Vec::with_capacity(100), &budget);
        spare.put(Vec::with_capacity(40), &budget);
        assert_eq!(spare.memory(30).unwrap().capacity(), 40);
        assert_eq!(spare.memory(30).unwrap().capacity(), 100);
        assert!(spare.memory(30).is_none());
    }
}
