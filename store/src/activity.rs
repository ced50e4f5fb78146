//! How busy a file has been lately, kept without a lock.

use std::collections::VecDeque;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::Store;
use crate::store::Inner;

/// Length of a window in nanoseconds. What is reported is of one to two windows.
const WINDOW: u64 = 4_000_000_000;
/// Files that were closed lately and are remembered.
const CLOSED: usize = 64;

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

fn now() -> u64 {
    START.elapsed().as_nanos() as u64
}

/// Bytes in the present window and in the one before. Threads that meet at the end of a window
/// may lose a few; nothing depends on them.
#[derive(Debug, Default)]
struct Meter {
    window: AtomicU64,
    current: AtomicU64,
    before: AtomicU64,
}

impl Meter {
    fn add(&self, bytes: u64, now: u64) {
        let window = now / WINDOW;
        let last = self.window.load(Ordering::Relaxed);
        if window != last {
            self.window.store(window, Ordering::Relaxed);
            let current = self.current.swap(0, Ordering::Relaxed);
            let before = if window == last + 1 { current } else { 0 };
            self.before.store(before, Ordering::Relaxed);
        }
        self.current.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes per second.
    fn rate(&self, now: u64) -> u64 {
        let window = now / WINDOW;
        let last = self.window.load(Ordering::Relaxed);
        let current = self.current.load(Ordering::Relaxed);
        let bytes = if last == window {
            self.before.load(Ordering::Relaxed) + current
        } else if last + 1 == window {
            current
        } else {
            0
        };
        let time = WINDOW + now % WINDOW;
        (u128::from(bytes) * 1_000_000_000 / u128::from(time)) as u64
    }
}

/// Traffic of a file.
#[derive(Debug, Default)]
pub(crate) struct Activity {
    read: Meter,
    written: Meter,
}

impl Activity {
    pub(crate) fn note_read(&self, bytes: u64) {
        self.read.add(bytes, now());
    }

    pub(crate) fn note_written(&self, bytes: u64) {
        self.written.add(bytes, now());
    }

    fn at(&self, ino: u64, now: u64) -> Busy {
        Busy {
            ino,
            read: self.read.rate(now),
            written: self.written.rate(now),
        }
    }
}

/// A file and its traffic of the last seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy {
    /// Its inode.
    pub ino: u64,
    /// Bytes per second that programs read.
    pub read: u64,
    /// Bytes per second that they wrote.
    pub written: u64,
}

impl Busy {
    fn all(&self) -> u64 {
        self.read + self.written
    }
}

/// Files closed lately with what they were doing, and when.
#[derive(Debug, Default)]
pub(crate) struct Closed(VecDeque<(u64, Busy)>);

impl Inner {
    /// Remembers the traffic of a file that is not used any more.
    pub(crate) fn note_closed(&self, ino: u64, activity: &Activity) {
        let now = now();
        let busy = activity.at(ino, now);
        if busy.all() > 0 {
            let mut closed = self.closed.lock();
            closed.0.retain(|(_, old)| old.ino != ino);
            closed.0.truncate(CLOSED - 1);
            closed.0.push_front((now, busy));
        }
    }
}

impl Store {
    /// The files with the most traffic in the last seconds, the busiest first.
    #[must_use]
    pub fn busiest(&self, count: usize) -> Vec<Busy> {
        let now = now();
        let mut all: Vec<Busy> = self.inner.activities(|ino, activity| activity.at(ino, now));
        for &(when, busy) in &self.inner.closed.lock().0 {
            if now.saturating_sub(when) < WINDOW && all.iter().all(|open| open.ino != busy.ino) {
                all.push(busy);
            }
        }
        all.retain(|busy| busy.all() > 0);
        all.sort_by_key(|busy| std::cmp::Reverse(busy.all()));
        all.truncate(count);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_is_forgotten_after_two_windows() {
        let meter = Meter::default();
        meter.add(8_000, 10 * WINDOW);
        assert_eq!(meter.rate(10 * WINDOW), 2_000);
        assert_eq!(meter.rate(11 * WINDOW), 2_000);
        meter.add(4_000, 11 * WINDOW + WINDOW / 2);
        assert_eq!(meter.rate(11 * WINDOW + WINDOW / 2), 2_000);
        assert_eq!(meter.rate(13 * WINDOW), 0);
        meter.add(400, 20 * WINDOW);
        assert_eq!(meter.rate(20 * WINDOW), 100);
    }
}
