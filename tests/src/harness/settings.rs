//! Settings of a run, from the environment.

use std::time::{Duration, Instant};

use crate::{Outcome, note};

const SEED_VARIABLE: &str = "SHALE_TEST_SEED";
const SECONDS_VARIABLE: &str = "SHALE_TEST_SECONDS";

/// True when the suites run on ext4, to prove the tests right.
pub fn on_ext4() -> bool {
    std::env::var("SHALE_TEST_ON").is_ok_and(|on| on == "ext4")
}

/// The seed of this run: `SHALE_TEST_SEED` or the time. It is printed.
pub fn seed() -> Outcome<u64> {
    let seed = match std::env::var(SEED_VARIABLE) {
        Ok(text) => text.parse()?,
        Err(_) => std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)?
            .as_nanos() as u64,
    };
    note(format!("repeat with {SEED_VARIABLE}={seed}"));
    Ok(seed)
}

/// The time that `SHALE_TEST_SECONDS` gives to each randomised test.
pub(crate) fn asked() -> Option<Duration> {
    let seconds = std::env::var(SECONDS_VARIABLE).ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// Numbers of rounds: `short` of them, and more until `SHALE_TEST_SECONDS` have passed.
pub fn rounds(short: u64) -> impl Iterator<Item = u64> {
    let end = asked().map(|time| Instant::now() + time);
    (0..).take_while(move |round| *round < short || end.is_some_and(|end| Instant::now() < end))
}

/// Whether a longer run than the short form was requested.
pub fn is_long() -> bool {
    asked().is_some()
}

/// Whether the binary under test has a sanitizer in it, as `SHALE_TEST_SANITIZED` says. Its memory
/// use is then not that of the product.
pub fn is_sanitized() -> bool {
    std::env::var_os("SHALE_TEST_SANITIZED").is_some()
}
