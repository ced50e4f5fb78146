//! Yields to programs and limits the rate.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use shale_index::Ino;

use crate::counters::Counters;
use crate::settle_control::SettleControl;

/// Programs that move more bytes per second than this go first.
const BUSY_RATE: f64 = 20e6;
/// How long to wait before checking again.
const LOOK: Duration = Duration::from_millis(50);
/// Settling continues after this time, however busy programs are.
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// Paces the settling of one file.
pub(super) struct Governor<'a> {
    control: &'a SettleControl,
    counters: &'a Counters,
    ino: Ino,
    /// Raw bytes per second.
    rate: u64,
    /// Wait for programs to be quiet.
    patient: bool,
    last: Mutex<Traffic>,
}

/// Bytes that programs had read and written at some time.
#[derive(Clone, Copy)]
struct Traffic {
    at: Instant,
    bytes: u64,
}

impl Traffic {
    fn now(counters: &Counters) -> Self {
        Self {
            at: Instant::now(),
            bytes: counters.traffic(),
        }
    }
}

impl<'a> Governor<'a> {
    pub(super) fn new(
        control: &'a SettleControl,
        counters: &'a Counters,
        ino: Ino,
        rate: u64,
        patient: bool,
    ) -> Self {
        Self {
            control,
            counters,
            ino,
            rate,
            patient,
            last: Mutex::new(Traffic::now(counters)),
        }
    }

    /// Waits until more bytes may be settled; `false` to end.
    pub(super) fn pace(&self, bytes: u64) -> bool {
        let due = self.control.schedule(bytes, self.rate);
        loop {
            let wait = due.saturating_duration_since(Instant::now());
            if wait.is_zero() || self.control.is_over(self.ino) {
                break;
            }
            std::thread::sleep(wait.min(LOOK));
        }
        let begun = Instant::now();
        while self.patient && self.is_busy() && begun.elapsed() < MAX_PAUSE {
            if self.control.is_over(self.ino) {
                return false;
            }
            std::thread::sleep(LOOK);
        }
        !self.control.is_over(self.ino)
    }

    /// Whether programs have moved a lot since the last check.
    fn is_busy(&self) -> bool {
        let mut last = self.last.lock();
        // Under the lock, so that no other worker checks later and comes first.
        let now = Traffic::now(self.counters);
        let then = std::mem::replace(&mut *last, now);
        drop(last);
        let seconds = (now.at - then.at).as_secs_f64().max(1e-6);
        (now.bytes - then.bytes) as f64 / seconds > BUSY_RATE
    }
}
