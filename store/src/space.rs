//! Free space on the device, asked now and then.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use shale_backing::Backing;

use crate::Error;

/// How long an answer of the device is good for.
const FRESH: Duration = Duration::from_millis(200);
/// Space that is left to the index and to garbage collection when the device is full.
const RESERVE_MIN: u64 = 4 << 20;
const RESERVE_MAX: u64 = 64 << 20;

/// Refuses writes that would not fit, so that `write` can say so and not only `fsync`.
#[derive(Debug)]
pub(crate) struct SpaceGuard {
    available: AtomicI64,
    asked: Mutex<Option<Instant>>,
    reserve: u64,
}

impl SpaceGuard {
    pub(crate) fn new(total: u64) -> Self {
        Self {
            available: AtomicI64::new(0),
            asked: Mutex::new(None),
            reserve: (total / 64).clamp(RESERVE_MIN, RESERVE_MAX),
        }
    }

    /// Whether `pending` more bytes fit, even if nothing of them compresses.
    pub(crate) fn admit(&self, backing: &dyn Backing, pending: u64) -> Result<(), Error> {
        if self.fits(backing, pending, FRESH) || self.fits(backing, pending, Duration::ZERO) {
            Ok(())
        } else {
            Err(Error::Refused(libc::ENOSPC))
        }
    }

    fn fits(&self, backing: &dyn Backing, pending: u64, fresh: Duration) -> bool {
        let mut asked = self.asked.lock();
        if asked.is_none_or(|at| at.elapsed() >= fresh)
            && let Ok(space) = backing.space()
        {
            *asked = Some(Instant::now());
            self.available
                .store(space.available as i64, Ordering::Relaxed);
        }
        self.available.load(Ordering::Relaxed) >= (pending + self.reserve) as i64
    }

    /// Whether the device is nearly full.
    pub(crate) fn is_low(&self, backing: &dyn Backing) -> bool {
        !self.fits(backing, 2 * self.reserve, FRESH)
    }

    /// Notes bytes written since the device was asked.
    pub(crate) fn spend(&self, bytes: u64) {
        self.available.fetch_sub(bytes as i64, Ordering::Relaxed);
    }
}
