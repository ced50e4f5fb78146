//! Decoded frames, kept while they are likely to be read again.
//!
//! A frame never changes, so an entry never becomes wrong; it is only evicted. Threads that want
//! the same frame at the same time share one decode.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::Error;
use crate::memory::{fits, fits_loosely};
use crate::pack::FrameAt;
use crate::primitives::{Condvar, Mutex};

/// The share of the limit that spare memory may take.
const SPARE_SHARE: u64 = 8;

/// A bounded cache of decoded frames.
#[derive(Debug)]
pub(crate) struct FrameCache {
    limit: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    entries: HashMap<FrameAt, Slot>,
    order: BTreeMap<u64, FrameAt>,
    clock: u64,
    /// Of entries and of spare memory.
    bytes: u64,
    /// Memory of evicted frames, for the next ones: fresh memory costs a page fault every 4 KiB.
    spare: Vec<Vec<u8>>,
    spare_bytes: u64,
}

#[derive(Debug)]
enum Slot {
    /// Being decoded. Each frame has its own condition: a wake-up of all waiting readers for each
    /// decoded frame would be expensive.
    Loading(Arc<Condvar>),
    Ready {
        data: Arc<Vec<u8>>,
        tick: u64,
    },
}

/// The state of a frame.
enum Found {
    Here(Arc<Vec<u8>>),
    OnTheWay(Arc<Condvar>),
}

impl FrameCache {
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            limit,
            state: Mutex::default(),
        }
    }

    /// The frame at `key`, decoded by `load` unless it is cached.
    pub(crate) fn get(
        &self,
        key: FrameAt,
        load: impl FnOnce() -> Result<Vec<u8>, Error>,
    ) -> Result<Arc<Vec<u8>>, Error> {
        {
            let mut state = self.state.lock();
            loop {
                match state.touch(key) {
                    Some(Found::Here(data)) => return Ok(data),
                    Some(Found::OnTheWay(loaded)) => loaded.wait(&mut state),
                    None => break,
                }
            }
            let loaded = Arc::new(Condvar::new());
            state.entries.insert(key, Slot::Loading(loaded));
        }
        let guard = LoadGuard { cache: self, key };
        let data = Arc::new(load()?);
        std::mem::forget(guard);
        let mut state = self.state.lock();
        state.stop_loading(key);
        state.insert(key, Arc::clone(&data), self.limit);
        Ok(data)
    }

    /// The frame at `key` if it is cached. Does not count as a use.
    pub(crate) fn peek(&self, key: FrameAt) -> Option<Arc<Vec<u8>>> {
        match self.state.lock().entries.get(&key) {
            Some(Slot::Ready { data, .. }) => Some(Arc::clone(data)),
            _ => None,
        }
    }

    /// Whether the frame at `key` is cached or being decoded.
    pub(crate) fn knows(&self, key: FrameAt) -> bool {
        self.state.lock().entries.contains_key(&key)
    }

    /// Remembers a frame that was just written.
    pub(crate) fn put(&self, key: FrameAt, data: Arc<Vec<u8>>) {
        let mut state = self.state.lock();
        if !state.entries.contains_key(&key) {
            state.insert(key, data, self.limit);
        }
    }

    /// Memory of another frame to decode the next one into; its contents are arbitrary.
    pub(crate) fn memory(&self, len: usize) -> Option<Vec<u8>> {
        let mut state = self.state.lock();
        let find = |fits: fn(&Vec<u8>, usize) -> bool| {
            state.spare.iter().rposition(|buffer| fits(buffer, len))
        };
        let at = find(fits).or_else(|| find(fits_loosely))?;
        let buffer = state.spare.swap_remove(at);
        state.spare_bytes -= buffer.capacity() as u64;
        state.bytes -= buffer.capacity() as u64;
        Some(buffer)
    }

    /// Evicts a frame that is not expected to be read again.
    pub(crate) fn forget(&self, key: FrameAt) {
        let mut state = self.state.lock();
        if let Some(Slot::Ready { tick, .. }) = state.entries.get(&key) {
            let tick = *tick;
            state.order.remove(&tick);
            state.leave(key, self.limit / SPARE_SHARE);
        }
    }

    /// Frees all spare memory, and evicts the least recently used frames until at most `rest` bytes
    /// are held.
    pub(crate) fn shrink(&self, rest: u64) {
        let mut state = self.state.lock();
        let spare = std::mem::take(&mut state.spare);
        state.bytes -= std::mem::take(&mut state.spare_bytes);
        while state.bytes > rest {
            let Some((_, oldest)) = state.order.pop_first() else {
                break;
            };
            state.leave(oldest, 0);
        }
        drop(state);
        drop(spare);
    }

    /// Bytes that may be held.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes held.
    pub(crate) fn used(&self) -> u64 {
        self.state.lock().bytes
    }
}

/// Lets other threads try when a load fails or panics.
struct LoadGuard<'a> {
    cache: &'a FrameCache,
    key: FrameAt,
}

impl Drop for LoadGuard<'_> {
    fn drop(&mut self) {
        self.cache.state.lock().stop_loading(self.key);
    }
}

impl State {
    fn touch(&mut self, key: FrameAt) -> Option<Found> {
        self.clock += 1;
        let clock = self.clock;
        match self.entries.get_mut(&key)? {
            Slot::Loading(loaded) => Some(Found::OnTheWay(Arc::clone(loaded))),
            Slot::Ready { data, tick } => {
                self.order.remove(tick);
                *tick = clock;
                self.order.insert(clock, key);
                Some(Found::Here(Arc::clone(data)))
            }
        }
    }

    /// Ends the loading of a frame, and wakes the readers that wait for it.
    fn stop_loading(&mut self, key: FrameAt) {
        if let Some(Slot::Loading(loaded)) = self.entries.remove(&key) {
            loaded.notify_all();
        }
    }

    /// Removes an entry, and keeps its memory if no reader uses it and there is less than `spare`
    /// of it.
    fn leave(&mut self, key: FrameAt, spare: u64) {
        let Some(Slot::Ready { data, .. }) = self.entries.remove(&key) else {
            return;
        };
        let len = data.capacity() as u64;
        match Arc::try_unwrap(data) {
            Ok(buffer) if self.spare_bytes + len <= spare => {
                self.spare_bytes += len;
                self.spare.push(buffer);
            }
            _ => self.bytes -= len,
        }
    }

    fn insert(&mut self, key: FrameAt, data: Arc<Vec<u8>>, limit: u64) {
        let len = data.capacity() as u64;
        if len > limit {
            return;
        }
        while self.bytes + len > limit {
            if let Some(buffer) = self.spare.pop() {
                self.spare_bytes -= buffer.capacity() as u64;
                self.bytes -= buffer.capacity() as u64;
                continue;
            }
            let Some((_, oldest)) = self.order.pop_first() else {
                break;
            };
            self.leave(oldest, 0);
        }
        self.clock += 1;
        self.bytes += len;
        self.order.insert(self.clock, key);
        self.entries.insert(
            key,
            Slot::Ready {
                data,
                tick: self.clock,
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use shale_index::extent::PackId;

    use super::*;

    fn frame(pack: u64, at: u64) -> FrameAt {
        let pack = PackId(pack);
        FrameAt { pack, at }
    }

    #[test]
    fn the_least_recently_used_frame_leaves_first() {
        let cache = FrameCache::new(3000);
        for i in 0..3 {
            cache.get(frame(1, i), || Ok(vec![i as u8; 1000])).unwrap();
        }
        cache.get(frame(1, 0), || panic!("it is cached")).unwrap();
        cache.get(frame(1, 3), || Ok(vec![3; 1000])).unwrap();
        cache
            .get(frame(1, 0), || panic!("it was used last"))
            .unwrap();
        let mut reloaded = false;
        cache
            .get(frame(1, 1), || {
                reloaded = true;
                Ok(vec![1; 1000])
            })
            .unwrap();
        assert!(reloaded);
        assert!(cache.used() <= 3000);
    }

    #[test]
    fn a_shrunken_cache_keeps_what_was_used_last() {
        let cache = FrameCache::new(80_000);
        for i in 0..20 {
            cache.get(frame(1, i), || Ok(vec![1; 1000])).unwrap();
        }
        cache.get(frame(1, 3), || panic!("it is cached")).unwrap();
        cache.forget(frame(1, 19));
        cache.shrink(2500);
        assert!(cache.used() <= 2500);
        assert!(cache.memory(1000).is_none(), "no memory without contents");
        assert!(cache.peek(frame(1, 3)).is_some() && cache.peek(frame(1, 18)).is_some());
        assert!(cache.peek(frame(1, 17)).is_none());
        cache.get(frame(1, 17), || Ok(vec![1; 1000])).unwrap();
    }

    #[test]
    fn memory_of_forgotten_frames_is_used_again_and_stays_within_the_limit() {
        let cache = FrameCache::new(80_000);
        let first = cache.get(frame(1, 0), || Ok(vec![1; 1000])).unwrap();
        cache.forget(frame(1, 0));
        assert_eq!(*first, vec![1; 1000], "in use, so it stays what it is");
        drop(first);
        let second = cache.get(frame(1, 1), || Ok(vec![2; 1000])).unwrap();
        let place = second.as_ptr();
        drop(second);
        cache.forget(frame(1, 1));
        let again = cache.memory(900).unwrap();
        assert_eq!(again.as_ptr(), place);
        for i in 0..200 {
            let data = cache.get(frame(2, i), || Ok(vec![3; 1000])).unwrap();
            drop(data);
            if i % 3 == 0 {
                cache.forget(frame(2, i));
            }
            assert!(cache.used() <= 80_000);
        }
        let held = {
            let state = cache.state.lock();
            let entries: u64 = state
                .entries
                .values()
                .map(|slot| match slot {
                    Slot::Ready { data, .. } => data.capacity() as u64,
                    Slot::Loading(_) => 0,
                })
                .sum();
            assert!(state.spare_bytes <= 80_000 / SPARE_SHARE);
            entries + state.spare_bytes
        };
        assert_eq!(cache.used(), held);
    }

    #[test]
    fn a_failed_load_leaves_nothing_behind() {
        let cache = FrameCache::new(3000);
        assert!(cache.get(frame(1, 1), || Err(Error::NoSpace)).is_err());
        assert_eq!(*cache.get(frame(1, 1), || Ok(vec![7])).unwrap(), vec![7]);
    }

    #[test]
    fn threads_that_want_one_frame_share_one_decode() {
        let cache = FrameCache::new(1 << 20);
        let loads = std::sync::atomic::AtomicUsize::new(0);
        let barrier = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    barrier.wait();
                    let data = cache.get(frame(9, 9), || {
                        loads.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                        Ok(vec![1; 100])
                    });
                    assert_eq!(data.unwrap().len(), 100);
                });
            }
        });
        assert_eq!(loads.into_inner(), 1);
    }
}
