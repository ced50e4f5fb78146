//! Decoded frames, kept while they are likely to be read again.
//!
//! A frame never changes, so an entry never becomes wrong; it only leaves to make room. Threads
//! that want the same frame at the same time share one decode.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::Error;
use crate::sync::{Condvar, Mutex};

/// A frame's place: pack and offset.
type Key = (u64, u64);

/// The part of the limit that memory without contents may take.
const SPARE_SHARE: u64 = 8;

/// A bounded cache of decoded frames.
#[derive(Debug)]
pub(crate) struct FrameCache {
    limit: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    entries: HashMap<Key, Slot>,
    order: BTreeMap<u64, Key>,
    clock: u64,
    /// Of entries and of spare memory.
    bytes: u64,
    /// Memory of frames that have left, for the next ones: fresh memory costs a page fault every
    /// 4 KiB.
    spare: Vec<Vec<u8>>,
    spare_bytes: u64,
}

#[derive(Debug)]
enum Slot {
    /// With those who wait for this one: a wake-up for each frame that anybody has decoded would
    /// cost more than it tells.
    Loading(Arc<Condvar>),
    Ready {
        data: Arc<Vec<u8>>,
        tick: u64,
    },
}

/// What is known of a frame.
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

    /// The frame at `key`, decoded by `load` unless it is here.
    pub(crate) fn get(
        &self,
        key: Key,
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

    /// The frame at `key` if it is here. Does not count as a use.
    pub(crate) fn peek(&self, key: Key) -> Option<Arc<Vec<u8>>> {
        match self.state.lock().entries.get(&key) {
            Some(Slot::Ready { data, .. }) => Some(Arc::clone(data)),
            _ => None,
        }
    }

    /// Whether the frame at `key` is here, or being decoded.
    pub(crate) fn knows(&self, key: Key) -> bool {
        self.state.lock().entries.contains_key(&key)
    }

    /// Remembers a frame that was just written.
    pub(crate) fn put(&self, key: Key, data: Arc<Vec<u8>>) {
        let mut state = self.state.lock();
        if !state.entries.contains_key(&key) {
            state.insert(key, data, self.limit);
        }
    }

    /// Memory of another frame to decode the next one into; what it holds is of no meaning.
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

    /// Lets a frame go that is not expected to be read again.
    pub(crate) fn forget(&self, key: Key) {
        let mut state = self.state.lock();
        if let Some(Slot::Ready { tick, .. }) = state.entries.get(&key) {
            let tick = *tick;
            state.order.remove(&tick);
            state.leave(key, self.limit / SPARE_SHARE);
        }
    }

    /// Lets all memory without contents go, and the frames that were not used for longest until
    /// no more than `rest` bytes are held.
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

    /// Bytes held, and those that may be.
    pub(crate) fn fill(&self) -> (u64, u64) {
        (self.state.lock().bytes, self.limit)
    }
}

/// Whether a buffer has room for `len` bytes and not too much for them.
pub(crate) fn fits(buffer: &Vec<u8>, len: usize) -> bool {
    (len..=2 * len).contains(&buffer.capacity())
}

/// The same, when fresh memory is what it would take otherwise.
pub(crate) fn fits_loosely(buffer: &Vec<u8>, len: usize) -> bool {
    (len..=4 * len).contains(&buffer.capacity())
}

/// Lets others try when a load fails or panics.
struct LoadGuard<'a> {
    cache: &'a FrameCache,
    key: Key,
}

impl Drop for LoadGuard<'_> {
    fn drop(&mut self) {
        self.cache.state.lock().stop_loading(self.key);
    }
}

impl State {
    fn touch(&mut self, key: Key) -> Option<Found> {
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

    /// Takes away that somebody is loading a frame, and wakes those who wait for it.
    fn stop_loading(&mut self, key: Key) {
        if let Some(Slot::Loading(loaded)) = self.entries.remove(&key) {
            loaded.notify_all();
        }
    }

    /// Takes an entry out, and keeps its memory if nobody uses it any more and there is less than
    /// `spare` of it.
    fn leave(&mut self, key: Key, spare: u64) {
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

    fn insert(&mut self, key: Key, data: Arc<Vec<u8>>, limit: u64) {
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
    use super::*;

    #[test]
    fn the_least_recently_used_frame_leaves_first() {
        let cache = FrameCache::new(3000);
        for i in 0..3 {
            cache.get((1, i), || Ok(vec![i as u8; 1000])).unwrap();
        }
        cache.get((1, 0), || panic!("it is cached")).unwrap();
        cache.get((1, 3), || Ok(vec![3; 1000])).unwrap();
        cache.get((1, 0), || panic!("it was used last")).unwrap();
        let mut reloaded = false;
        cache
            .get((1, 1), || {
                reloaded = true;
                Ok(vec![1; 1000])
            })
            .unwrap();
        assert!(reloaded);
        assert!(cache.fill().0 <= 3000);
    }

    #[test]
    fn a_shrunken_cache_keeps_what_was_used_last() {
        let cache = FrameCache::new(80_000);
        for i in 0..20 {
            cache.get((1, i), || Ok(vec![1; 1000])).unwrap();
        }
        cache.get((1, 3), || panic!("it is cached")).unwrap();
        cache.forget((1, 19));
        cache.shrink(2500);
        assert!(cache.fill().0 <= 2500);
        assert!(cache.memory(1000).is_none(), "no memory without contents");
        assert!(cache.peek((1, 3)).is_some() && cache.peek((1, 18)).is_some());
        assert!(cache.peek((1, 17)).is_none());
        cache.get((1, 17), || Ok(vec![1; 1000])).unwrap();
    }

    #[test]
    fn memory_of_forgotten_frames_is_used_again_and_stays_within_the_limit() {
        let cache = FrameCache::new(80_000);
        let first = cache.get((1, 0), || Ok(vec![1; 1000])).unwrap();
        cache.forget((1, 0));
        assert_eq!(*first, vec![1; 1000], "in use, so it stays what it is");
        drop(first);
        let second = cache.get((1, 1), || Ok(vec![2; 1000])).unwrap();
        let place = second.as_ptr();
        drop(second);
        cache.forget((1, 1));
        let again = cache.memory(900).unwrap();
        assert_eq!(again.as_ptr(), place);
        for i in 0..200 {
            let data = cache.get((2, i), || Ok(vec![3; 1000])).unwrap();
            drop(data);
            if i % 3 == 0 {
                cache.forget((2, i));
            }
            assert!(cache.fill().0 <= 80_000);
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
        assert_eq!(cache.fill().0, held);
    }

    #[test]
    fn a_failed_load_leaves_nothing_behind() {
        let cache = FrameCache::new(3000);
        assert!(cache.get((1, 1), || Err(Error::Refused(5))).is_err());
        assert_eq!(*cache.get((1, 1), || Ok(vec![7])).unwrap(), vec![7]);
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
                    let data = cache.get((9, 9), || {
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
