//! How much programs read and wrote a file lately, counted without a lock.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use shale_index::Ino;

/// Length of a window in nanoseconds. Reports cover one to two windows.
const WINDOW: u64 = 4_000_000_000;
/// Files that were closed lately and are remembered.
const CLOSED: usize = 64;

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

fn now() -> u64 {
    START.elapsed().as_nanos() as u64
}

/// Bytes in the current window and in the previous one. Threads that meet at the end of a window
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

/// Traffic of a file, in use or closed lately. Counting restarts after some quiet seconds.
#[derive(Debug, Default)]
pub(crate) struct TrafficMeter {
    lately: Meter,
    read: AtomicU64,
    written: AtomicU64,
    begun: AtomicU64,
}

impl TrafficMeter {
    pub(crate) fn note_read(&self, bytes: u64) {
        self.note(&self.read, bytes, now());
    }

    pub(crate) fn note_written(&self, bytes: u64) {
        self.note(&self.written, bytes, now());
    }

    fn note(&self, what: &AtomicU64, bytes: u64, now: u64) {
        if self.lately.rate(now) == 0 {
            self.read.store(0, Ordering::Relaxed);
            self.written.store(0, Ordering::Relaxed);
            self.begun.store(now, Ordering::Relaxed);
        }
        self.lately.add(bytes, now);
        what.fetch_add(bytes, Ordering::Relaxed);
    }

    fn at(&self, ino: Ino, now: u64) -> FileTraffic {
        FileTraffic {
            ino,
            read: self.read.load(Ordering::Relaxed),
            written: self.written.load(Ordering::Relaxed),
            age: Duration::from_nanos(now.saturating_sub(self.begun.load(Ordering::Relaxed))),
            rate: self.lately.rate(now),
        }
    }
}

/// A file that was busy in the last seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileTraffic {
    /// Its inode.
    pub ino: Ino,
    /// Bytes that programs read since it became busy.
    pub read: u64,
    /// Bytes that they wrote.
    pub written: u64,
    /// How long ago it became busy.
    pub age: Duration,
    /// Bytes per second that they moved lately.
    rate: u64,
}

/// Traffic of files that were closed lately, the last one first.
#[derive(Debug, Default)]
pub(super) struct ClosedFiles(VecDeque<(u64, Arc<TrafficMeter>)>);

impl ClosedFiles {
    /// Remembers the traffic of a file that is no longer used.
    pub(super) fn note(&mut self, ino: Ino, traffic: &Arc<TrafficMeter>) {
        if traffic.lately.rate(now()) > 0 {
            self.0.retain(|(old, _)| *old != ino);
            self.0.truncate(CLOSED - 1);
            self.0.push_front((ino, Arc::clone(traffic)));
        }
    }

    /// Those with the most traffic in the last seconds among files in use and these, the busiest
    /// first.
    pub(super) fn busiest(
        &self,
        in_use: &[(Ino, Arc<TrafficMeter>)],
        count: usize,
    ) -> Vec<FileTraffic> {
        let now = now();
        let in_use = in_use.iter().map(|(ino, traffic)| traffic.at(*ino, now));
        let mut all: Vec<FileTraffic> = in_use.collect();
        for (ino, traffic) in &self.0 {
            if all.iter().all(|open| open.ino != *ino) {
                all.push(traffic.at(*ino, now));
            }
        }
        all.retain(|busy| busy.rate > 0);
        all.sort_by_key(|busy| std::cmp::Reverse(busy.rate));
        all.truncate(count);
        all
    }

    /// The traffic of a file that comes into use: that of one closed lately goes on.
    pub(super) fn of(&self, ino: Ino) -> Arc<TrafficMeter> {
        let known = self.0.iter().find(|(old, _)| *old == ino);
        known.map_or_else(Arc::default, |(_, traffic)| Arc::clone(traffic))
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

    #[test]
    fn counting_restarts_after_quiet_seconds() {
        let traffic = TrafficMeter::default();
        traffic.note(&traffic.written, 1000, 10 * WINDOW);
        traffic.note(&traffic.written, 1000, 11 * WINDOW);
        traffic.note(&traffic.read, 10, 12 * WINDOW);
        let busy = traffic.at(7, 12 * WINDOW);
        assert_eq!((busy.written, busy.read), (2000, 10));
        assert_eq!(busy.age, Duration::from_nanos(2 * WINDOW));
        traffic.note(&traffic.written, 500, 20 * WINDOW);
        let busy = traffic.at(7, 20 * WINDOW);
        assert_eq!(
            (busy.written, busy.read, busy.age),
            (500, 0, Duration::ZERO)
        );
    }
}
