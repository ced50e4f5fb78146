//! Values of options: sizes, times, numbers and their ranges.

use std::time::Duration;

use super::{CHUNK_MAX, CHUNK_MIN, MEMORY_MAX, MEMORY_MIN, OptionError, WORKERS_MAX};

pub(super) const KIB: u64 = 1 << 10;
pub(super) const MIB: u64 = 1 << 20;
pub(super) const GIB: u64 = 1 << 30;
pub(super) const TIB: u64 = 1 << 40;

/// Parses a memory budget.
///
/// # Errors
/// Not a size, or out of range.
pub(crate) fn parse_memory(text: &str) -> Result<u64, OptionError> {
    const WANTED: &str = "give a size from 16M to 1T, for example memory=4G";
    match parse_size(text) {
        Some(bytes) if (MEMORY_MIN..=MEMORY_MAX).contains(&bytes) => Ok(bytes),
        Some(_) => Err(OptionError(format!(
            "memory '{text}' is out of range; {WANTED}"
        ))),
        None => Err(OptionError(format!(
            "memory '{text}' is not a size; {WANTED}"
        ))),
    }
}

/// Parses how long a file must be quiet before it is settled; `None` is never.
///
/// # Errors
/// Neither `off` nor a number of seconds up to a year.
pub(crate) fn parse_settle(text: &str) -> Result<Option<Duration>, OptionError> {
    const YEAR: u64 = 366 * 24 * 3600;
    match (text, text.parse()) {
        ("off", _) => Ok(None),
        (_, Ok(seconds)) if seconds <= YEAR => Ok(Some(Duration::from_secs(seconds))),
        _ => Err(OptionError(format!(
            "settle '{text}' is not a time; give 'off' or seconds up to a year, \
             for example settle=60"
        ))),
    }
}

/// Parses how many bytes are settled per second.
///
/// # Errors
/// Not a size, or out of range.
pub(crate) fn parse_settle_rate(text: &str) -> Result<u64, OptionError> {
    match parse_size(text) {
        Some(bytes) if (MIB..=TIB).contains(&bytes) => Ok(bytes),
        _ => Err(OptionError(format!(
            "settle_rate '{text}' is not a size from 1M to 1T; \
             give bytes per second, for example settle_rate=100M"
        ))),
    }
}

/// Parses a chunk size.
///
/// # Errors
/// Not a size, out of range or not a power of two.
pub(crate) fn parse_chunk(text: &str) -> Result<u32, OptionError> {
    const WANTED: &str = "give a power of two from 64K to 16M, for example chunk=1M";
    let Some(bytes) = parse_size(text) else {
        return Err(OptionError(format!(
            "chunk '{text}' is not a size; {WANTED}"
        )));
    };
    if !(CHUNK_MIN..=CHUNK_MAX).contains(&bytes) {
        return Err(OptionError(format!(
            "chunk '{text}' is out of range; {WANTED}"
        )));
    }
    match u32::try_from(bytes) {
        Ok(chunk) if chunk.is_power_of_two() => Ok(chunk),
        _ => Err(OptionError(format!(
            "chunk '{text}' is not a power of two; {WANTED}"
        ))),
    }
}

/// Parses users, by name or number.
///
/// # Errors
/// A name that no user has.
pub(crate) fn parse_users(text: &str) -> Result<Vec<u32>, OptionError> {
    text.split('+')
        .map(|user| {
            if let Ok(number) = user.parse() {
                return Ok(number);
            }
            match nix::unistd::User::from_name(user) {
                Ok(Some(found)) => Ok(found.uid.as_raw()),
                _ => Err(OptionError(format!(
                    "metrics_users: there is no user '{user}'; give names or numbers, for \
                     example metrics_users=prometheus+1001"
                ))),
            }
        })
        .collect()
}

/// Parses the number of workers that an option of this name asks for.
///
/// # Errors
/// Not a number, or out of range.
pub(crate) fn parse_workers(name: &str, text: &str) -> Result<usize, OptionError> {
    let refused = |what: &str| {
        OptionError(format!(
            "{name} '{text}' is {what}; give a number from 1 to {WORKERS_MAX}, for example {name}=8"
        ))
    };
    let workers: u64 = text.parse().map_err(|_| refused("not a number"))?;
    match usize::try_from(workers) {
        Ok(workers) if (1..=WORKERS_MAX).contains(&workers) => Ok(workers),
        _ => Err(refused("out of range")),
    }
}

/// Parses `4096`, `64K`, `16M`, `4G`, `1T`, `64KiB`, `1.5g`; units are powers of 1024. `None`
/// when it is not a size or does not fit.
#[must_use]
pub fn parse_size(text: &str) -> Option<u64> {
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => KIB,
        "m" | "mb" | "mib" => MIB,
        "g" | "gb" | "gib" => GIB,
        "t" | "tb" | "tib" => TIB,
        _ => return None,
    };
    let Some((whole, fraction)) = number.split_once('.') else {
        return number.parse::<u64>().ok()?.checked_mul(unit);
    };
    // Three decimals are plenty and keep this exact.
    if fraction.is_empty() || fraction.len() > 3 || unit == 1 {
        return None;
    }
    let digits = u32::try_from(fraction.len()).ok()?;
    let part = fraction.parse::<u64>().ok()?.checked_mul(unit)? / 10_u64.pow(digits);
    whole
        .parse::<u64>()
        .ok()?
        .checked_mul(unit)?
        .checked_add(part)
}
