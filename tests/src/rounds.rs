//! How long a randomised test goes on.

use std::time::{Duration, Instant};

const VARIABLE: &str = "SHALE_TEST_SECONDS";

/// The time that `SHALE_TEST_SECONDS` gives to each randomised test.
pub(crate) fn asked() -> Option<Duration> {
    let seconds = std::env::var(VARIABLE).ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// Numbers of rounds: as many as `short`, and more until `SHALE_TEST_SECONDS` have passed.
pub fn rounds(short: u64) -> impl Iterator<Item = u64> {
    let end = asked().map(|time| Instant::now() + time);
    (0..).take_while(move |round| *round < short || end.is_some_and(|end| Instant::now() < end))
}

/// Whether more time was asked for than a short run takes.
pub fn is_long() -> bool {
    asked().is_some()
}
