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

/// Refuses writes that would not fit, so that `write` can say so and not only `fsync`.
#[derive(Debug)]
pub(crate) struct SpaceGuard {
    available: AtomicI64,
    asked: Mutex<Option<Instant>>,
    margin: u64,
    /// What programs leave: the margin, and room for the copy of a pack. A pack can be deleted
    /// only when everything alive in it has been copied.
    reserve: u64,
}

impl SpaceGuard {
    /// For packs that are sealed at `pack` bytes.
    pub(crate) fn new(total: u64, pack: u64) -> Self {
        let margin = margin(total);
        Self {
            available: AtomicI64::new(0),
            asked: Mutex::new(None),
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
        if fits(FRESH) || fits(Duration::ZERO) {
            Ok(())
        } else {
            Err(Error::Refused(libc::ENOSPC))
        }
    }

    /// Bytes available; an answer of the device that is not older than `fresh` will do.
    fn look(&self, backing: &dyn Backing, fresh: Duration) -> i64 {
        let mut asked = self.asked.lock();
        if asked.is_none_or(|at| at.elapsed() >= fresh)
            && let Ok(space) = backing.space()
        {
            *asked = Some(Instant::now());
            self.available
                .store(space.available as i64, Ordering::Relaxed);
        }
        self.available.load(Ordering::Relaxed)
    }

    /// Whether the device is nearly full.
    pub(crate) fn is_low(&self, backing: &dyn Backing) -> bool {
        self.look(backing, FRESH) < 3 * self.reserve as i64
    }

    /// Bytes that garbage collection may write, beside the `pending` ones of programs.
    pub(crate) fn room(&self, backing: &dyn Backing, pending: u64) -> u64 {
        let left = (pending + self.margin) as i64;
        u64::try_from(self.look(backing, Duration::ZERO) - left).unwrap_or(0)
    }

    /// Notes bytes written since the device was asked.
    pub(crate) fn spend(&self, bytes: u64) {
        self.available.fetch_sub(bytes as i64, Ordering::Relaxed);
    }
}
