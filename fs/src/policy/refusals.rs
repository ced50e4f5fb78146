//! Logs why attributes were refused, without letting users fill the log.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use shale_index::Ino;
use shale_store::Store;

/// Most reasons that are logged in a period.
const LOGGED: u64 = 100;
const PERIOD: Duration = Duration::from_secs(60);

/// Attributes that were refused.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Mutex<Option<Period>>);

/// A time that begins with a refusal.
#[derive(Clone, Copy, Debug)]
struct Period {
    begun: Instant,
    refused: u64,
}

impl Period {
    fn left_out(self) -> u64 {
        self.refused.saturating_sub(LOGGED)
    }
}

/// The log lines for one more refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Due {
    reason: bool,
    /// Refusals that were not logged in a period that is over.
    left_out: u64,
}

impl Refusals {
    /// Logs why an attribute was refused, unless too many were logged lately.
    pub(super) fn log(&self, store: &Store, ino: Ino, name: &[u8], reason: &str) {
        let due = self.count(Instant::now());
        log_left_out(due.left_out);
        if due.reason {
            tracing::warn!(
                inode = ino,
                "{}: attribute {} refused: {reason}",
                store.path_of(ino),
                name.escape_ascii()
            );
        }
    }

    fn count(&self, now: Instant) -> Due {
        let mut period = self.0.lock();
        let over = period.filter(|period| now.duration_since(period.begun) >= PERIOD);
        let new = Period {
            begun: now,
            refused: 0,
        };
        let mut current = match (*period, over) {
            (Some(current), None) => current,
            _ => new,
        };
        current.refused += 1;
        *period = Some(current);
        Due {
            reason: current.refused <= LOGGED,
            left_out: over.map_or(0, Period::left_out),
        }
    }
}

impl Drop for Refusals {
    fn drop(&mut self) {
        log_left_out(self.0.get_mut().map_or(0, Period::left_out));
    }
}

/// Whether a line of a log only reports a refused attribute.
#[must_use]
pub fn tells_of_refusal(line: &str) -> bool {
    line.contains(" WARN ") && line.contains(": attribute ") && line.contains(" refused: ")
        || line.contains(" WARN attributes were refused ")
}

fn log_left_out(count: u64) {
    if count > 0 {
        tracing::warn!(
            "attributes were refused {count} more times; at most {LOGGED} refusals a minute are \
             logged"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_of_bad_attributes_does_not_fill_the_log() {
        let refusals = Refusals::default();
        let begun = Instant::now();
        let at = |seconds| refusals.count(begun + Duration::from_secs(seconds));
        let due = |reason, left_out| Due { reason, left_out };
        for _ in 0..LOGGED {
            assert_eq!(at(0), due(true, 0));
        }
        for _ in 0..1000 {
            assert_eq!(at(59), due(false, 0));
        }
        assert_eq!(at(60), due(true, 1000));
        assert_eq!(at(61), due(true, 0));
        // A quiet minute leaves nothing to log.
        assert_eq!(at(200), due(true, 0));
    }
}
