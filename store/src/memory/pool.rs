//! Buffers of written chunks, kept for the next ones. Fresh memory costs a page fault every
//! 4 KiB, a third of the time of a stream of writes.

use std::time::{Duration, Instant};

use super::WriteLimiter;
use crate::primitives::Mutex;

/// How long an unused buffer is kept.
const IDLE: Duration = Duration::from_secs(5);

/// Length of a chunk unless a policy says otherwise.
const CHUNK: usize = 1 << 20;
/// Room for a tile.
const TILE: usize = 512 << 10;
/// Buffers that are allocated before the first write or read and kept for the next burst: length
/// of a buffer, upper bound of their total in bytes, and the same as a share of the limit.
const RESERVE: [(usize, u64, u64); 2] = [(CHUNK, 64 << 20, 8), (TILE, 32 << 20, 16)];

/// Reusable buffers. Together with unwritten data they stay within the limit of the limiter.
#[derive(Debug, Default)]
pub(crate) struct BufferPool {
    state: Mutex<State>,
}

/// Lengths of buffers and how many of them are kept ready.
fn reserve(limiter: &WriteLimiter) -> impl Iterator<Item = (usize, usize)> {
    let limit = limiter.limit();
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

impl BufferPool {
    /// Allocates the reserve, unless a writer is active: its buffers come back to the pool anyway.
    pub(crate) fn fill(&self, limiter: &WriteLimiter) {
        for (len, wanted) in reserve(limiter) {
            while self.state.lock().count(len) < wanted && limiter.used() == 0 {
                let mut buffer = Vec::with_capacity(len);
                // Not zeros: untouched memory reads as zeros without being mapped.
                buffer.resize(len, 1);
                if !self.put(std::hint::black_box(buffer), limiter) {
                    return;
                }
            }
        }
    }

    /// An empty buffer with room for a chunk of `len` bytes, if the pool has one.
    pub(crate) fn take(&self, len: usize) -> Option<Vec<u8>> {
        let mut buffer = self.state.lock().take(|buffer| fits(buffer, len))?;
        buffer.clear();
        Some(buffer)
    }

    /// A buffer for a frame of `len` bytes, if the pool has one; too large is better than fresh.
    /// Its contents are arbitrary: the caller overwrites all of it.
    pub(crate) fn memory(&self, len: usize) -> Option<Vec<u8>> {
        let mut state = self.state.lock();
        state
            .take(|buffer| fits(buffer, len))
            .or_else(|| state.take(|buffer| fits_loosely(buffer, len)))
    }

    /// Keeps a buffer if the limiter has room for it; returns whether it does.
    pub(crate) fn put(&self, buffer: Vec<u8>, limiter: &WriteLimiter) -> bool {
        let len = buffer.capacity() as u64;
        let mut state = self.state.lock();
        let room = state.bytes + len + limiter.used() <= limiter.limit();
        if room {
            state.bytes += len;
            state.buffers.push(buffer);
        }
        room
    }

    /// Frees buffers for which the limiter has no room. A pool that was not used for a while keeps
    /// only the reserve.
    pub(crate) fn trim(&self, limiter: &WriteLimiter) {
        let mut state = self.state.lock();
        let room = limiter.limit().saturating_sub(limiter.used());
        let idle = state.used.is_none_or(|used| used.elapsed() >= IDLE);
        if idle {
            state.keep(reserve(limiter));
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
            self.fill(limiter);
        }
    }
}

/// Whether a buffer has room for `len` bytes, and not too much for them.
pub(crate) fn fits(buffer: &Vec<u8>, len: usize) -> bool {
    (len..=2 * len).contains(&buffer.capacity())
}

/// The same where the alternative is fresh memory.
pub(crate) fn fits_loosely(buffer: &Vec<u8>, len: usize) -> bool {
    (len..=4 * len).contains(&buffer.capacity())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pooled_buffers_and_unwritten_data_share_one_limit() {
        let limiter = WriteLimiter::new(100);
        let pool = BufferPool::default();
        pool.put(Vec::with_capacity(60), &limiter);
        pool.put(Vec::with_capacity(60), &limiter);
        assert!(pool.take(10).is_none(), "only buffers of the length asked");
        limiter.take(50, || {}).unwrap();
        pool.trim(&limiter);
        assert!(pool.take(60).is_none(), "the data needs the room");
    }

    #[test]
    fn the_reserve_exists_before_the_first_write_and_is_kept() {
        let limiter = WriteLimiter::new(40 << 20);
        let pool = BufferPool::default();
        pool.fill(&limiter);
        pool.put(Vec::with_capacity(CHUNK), &limiter);
        pool.trim(&limiter);
        for (len, wanted) in [(CHUNK, 5), (TILE, 5)] {
            let mut ready = Vec::new();
            while let Some(buffer) = pool.take(len) {
                ready.push(buffer);
            }
            assert_eq!(
                ready.len(),
                wanted,
                "an eighth and a sixteenth of the limit"
            );
            assert!(ready.iter().all(Vec::is_empty));
        }
    }

    #[test]
    fn a_buffer_comes_back_empty() {
        let limiter = WriteLimiter::new(1000);
        let pool = BufferPool::default();
        let mut buffer = Vec::with_capacity(60);
        buffer.extend_from_slice(b"of another file");
        pool.put(buffer, &limiter);
        let buffer = pool.take(60).unwrap();
        assert!(buffer.is_empty());
        assert!(pool.take(60).is_none());
    }

    #[test]
    fn a_frame_rather_takes_what_is_too_large_than_nothing() {
        let limiter = WriteLimiter::new(1000);
        let pool = BufferPool::default();
        pool.put(Vec::with_capacity(100), &limiter);
        pool.put(Vec::with_capacity(40), &limiter);
        assert_eq!(pool.memory(30).unwrap().capacity(), 40);
        assert_eq!(pool.memory(30).unwrap().capacity(), 100);
        assert!(pool.memory(30).is_none());
    }
}
