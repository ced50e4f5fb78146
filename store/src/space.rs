//! Free space on the device, asked now and then.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use shale_backing::Backing;

use crate::Error;
use crate::pack::seal_bytes;
use crate::sync::Mutex;

/// How long an answer of the device is good for.
const FRESH: Duration = Duration::from_millis(200);
/// Space that is left to the index when the device is full, also by garbage collection.
const MARGIN_MIN: u64 = 4 << 20;
const MARGIN_MAX: u64 = 64 << 20;

/// What a store keeps free on a device of so many bytes, to be able to delete and collect.
#[must_use]
pub fn reserve(total: u64) -> u64 {
    margin(total) + seal_bytes(total)
}

fn margin(total: u64) -> u64 {
    (total / 64).clamp(MARGIN_MIN, MARGIN_MAX)
}

/// How often a device that counts late is made to count: for a write that seems not to fit, and to
/// know whether the device is nearly full.
const COUNT: Duration = Duration::from_secs(1);
const COUNT_LOW: Duration = Duration::from_secs(5);

/// Refuses writes that would not fit, so that `write` can say so and not only `fsync`.
#[derive(Debug)]
pub(crate) struct SpaceGuard {
    available: AtomicI64,
    asked: Mutex<Asked>,
    /// Bytes written since the device counted, where it does so late.
    uncounted: AtomicI64,
    late: bool,
    margin: u64,
    /// What programs leave: the margin, and room for the copy of a pack. A pack can be deleted
    /// only when everything alive in it has been copied.
    reserve: u64,
}

/// When the device was asked, and what it said last when it had counted everything.
#[derive(Debug, Default)]
struct Asked {
    at: Option<Instant>,
    counted: Option<(Instant, i64)>,
}

impl SpaceGuard {
    /// For packs that are sealed at `pack` bytes, on a device that counts late or not.
    pub(crate) fn new(total: u64, pack: u64, late: bool) -> Self {
        let margin = margin(total);
        Self {
            available: AtomicI64::new(0),
            asked: Mutex::default(),
            uncounted: AtomicI64::new(0),
            late,
            margin,
            reserve: margin + pack,
        }
    }

    /// Whether `pending` more bytes fit, even if nothing of them compresses.
    pub(crate) fn admit(&self, backing: &dyn Backing, pending: u64) -> Result<(), Error> {
        self.admit_above(backing, pending, self.reserve)
    }

    /// The same for garbage collection, which may use what programs leave.
    pub(crate) fn admit_copy(&self, backing: &dyn Backing, pending: u64) -> Result<(), Error> {
        self.admit_above(backing, pending, self.margin)
    }

    fn admit_above(&self, backing: &dyn Backing, pending: u64, left: u64) -> Result<(), Error> {
        let fits = |fresh| self.look(backing, fresh) >= (pending + left) as i64;
        if fits(FRESH) || fits(Duration::ZERO) || (self.count(backing, COUNT) && fits(FRESH)) {
            Ok(())
        } else {
            Err(Error::Refused(libc::ENOSPC))
        }
    }

    /// Bytes available; an answer of the device that is not older than `fresh` will do.
    fn look(&self, backing: &dyn Backing, fresh: Duration) -> i64 {
        if self.late && self.asked.lock().counted.is_none() {
            self.count(backing, Duration::ZERO);
        }
        let mut asked = self.asked.lock();
        if asked.at.is_none_or(|at| at.elapsed() >= fresh)
            && let Ok(space) = backing.space()
        {
            asked.at = Some(Instant::now());
            let mut available = space.available as i64;
            if let Some((_, counted)) = asked.counted {
                available = available.min(counted - self.uncounted.load(Ordering::Relaxed));
            }
            self.available.store(available, Ordering::Relaxed);
        }
        self.available.load(Ordering::Relaxed)
    }

    /// Makes a device count that does so late, unless it has done so a moment ago. Returns whether
    /// it has.
    fn count(&self, backing: &dyn Backing, moment: Duration) -> bool {
        if !self.late {
            return false;
        }
        let mut asked = self.asked.lock();
        if asked.counted.is_some_and(|(at, _)| at.elapsed() < moment) {
            return false;
        }
        // What is written meanwhile may or may not be counted.
        let before = self.uncounted.load(Ordering::Relaxed);
        let Ok(space) = backing.count().and_then(|()| backing.space()) else {
            return false;
        };
        let since = self.uncounted.fetch_sub(before, Ordering::Relaxed) - before;
        let (now, available) = (Instant::now(), space.available as i64);
        *asked = Asked {
            at: Some(now),
            counted: Some((now, available)),
        };
        self.available.store(available - since, Ordering::Relaxed);
        true
    }

    /// Bytes available, of which a device that counts late is asked again when they are few.
    fn look_twice(&self, backing: &dyn Backing, fresh: Duration) -> i64 {
        let available = self.look(backing, fresh);
        if available < 4 * self.reserve as i64 && self.count(backing, COUNT_LOW) {
            return self.available.load(Ordering::Relaxed);
        }
        available
    }

    /// Whether the device is nearly full.
    pub(crate) fn is_low(&self, backing: &dyn Backing) -> bool {
        self.look_twice(backing, FRESH) < 3 * self.reserve as i64
    }

    /// Bytes that garbage collection may write, beside the `pending` ones of programs.
    pub(crate) fn room(&self, backing: &dyn Backing, pending: u64) -> u64 {
        let left = (pending + self.margin) as i64;
        u64::try_from(self.look_twice(backing, Duration::ZERO) - left).unwrap_or(0)
    }

    /// Notes bytes written since the device was asked.
    pub(crate) fn spend(&self, bytes: u64) {
        self.available.fetch_sub(bytes as i64, Ordering::Relaxed);
        self.uncounted.fetch_add(bytes as i64, Ordering::Relaxed);
    }
}
