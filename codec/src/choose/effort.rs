//! How much time to spend on a chunk.
#![forbid(unsafe_code)]

use std::fmt;
use std::str::FromStr;

/// How much time a chunk is worth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Effort {
    /// Store the bytes uncompressed.
    None,
    /// Keep up with ingest: transforms and entropy coding, hardly any matching.
    #[default]
    Fast,
    /// Between `Fast` and `Dense`.
    Balanced,
    /// For the background pass: the densest form that still reads fast.
    Dense,
    /// Plain LZ4, no transform.
    Lz4,
    /// Plain zstd at a level from 1 to 19, no transform.
    Zstd(i32),
}

/// The text does not name an effort.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an effort: none, fast, balanced, dense, lz4 or zstd:1..19")]
pub struct ParseEffortError(String);

impl FromStr for Effort {
    type Err = ParseEffortError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || ParseEffortError(text.to_owned());
        Ok(match text {
            "none" => Effort::None,
            "fast" => Effort::Fast,
            "balanced" => Effort::Balanced,
            "dense" => Effort::Dense,
            "lz4" => Effort::Lz4,
            _ => {
                let level = text.strip_prefix("zstd:").ok_or_else(refuse)?;
                match level.parse::<i32>() {
                    Ok(level @ 1..=19) => Effort::Zstd(level),
                    _ => return Err(refuse()),
                }
            }
        })
    }
}

impl fmt::Display for Effort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Effort::None => f.write_str("none"),
            Effort::Fast => f.write_str("fast"),
            Effort::Balanced => f.write_str("balanced"),
            Effort::Dense => f.write_str("dense"),
            Effort::Lz4 => f.write_str("lz4"),
            Effort::Zstd(level) => write!(f, "zstd:{level}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_effort_survives_text() {
        for text in [
            "none", "fast", "balanced", "dense", "lz4", "zstd:1", "zstd:19",
        ] {
            assert_eq!(text.parse::<Effort>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn unknown_efforts_are_refused() {
        for text in ["", "zstd", "zstd:", "zstd:0", "zstd:20", "Fast", "lz4:1"] {
            assert!(text.parse::<Effort>().is_err(), "{text}");
        }
    }
}
