//! Values of policies, as text and as a type.

use std::fmt;
use std::time::Duration;

use shale_store::Effort;

use super::Key;
use crate::options::{parse_chunk, parse_settle};

/// Longest value of an attribute.
const MAX: usize = 255;
/// Bytes of a bad value that a message repeats.
const SHOWN: usize = 64;

/// A valid value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Of [`Key::Codec`].
    Codec(Codec),
    /// Of [`Key::Effort`]: `Fast`, `Balanced` or `Dense`.
    Effort(Effort),
    /// Of [`Key::Chunk`], in bytes, a power of two.
    Chunk(u32),
    /// Of [`Key::Settle`].
    Settle(Settle),
    /// Of [`Key::SettleCodec`].
    SettleCodec(Codec),
    /// Of [`Key::Region`].
    Region(String),
    /// Of [`Key::Durability`].
    Durability(Durability),
}

/// How bytes are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// By column, as suits the data.
    Auto,
    /// Raw, with checksums.
    None,
    /// LZ4.
    Lz4,
    /// zstd at a level from 1 to 19.
    Zstd(i32),
}

/// Whether and when files settle in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settle {
    /// Never.
    Off,
    /// After the quiet time of the mount.
    On,
    /// When they have not changed for this time.
    After(Duration),
}

/// When a file is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// A few seconds after it was written, or after fsync.
    Normal,
    /// When it has been closed.
    Sync,
}

/// A value that the policy cannot have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{value}' is not a valid {}; give {}", .key.name(), .key.wanted())]
pub struct BadValue {
    key: Key,
    value: String,
}

impl Value {
    /// Reads a value as an attribute holds it.
    ///
    /// # Errors
    /// The key does not have such a value.
    pub fn parse(key: Key, bytes: &[u8]) -> Result<Self, BadValue> {
        let text = std::str::from_utf8(bytes)
            .ok()
            .filter(|text| text.len() <= MAX);
        let value = text.and_then(|text| match key {
            Key::Codec => Codec::parse(text).map(Self::Codec),
            Key::SettleCodec => Codec::parse(text).map(Self::SettleCodec),
            Key::Effort => match text {
                "fast" => Some(Self::Effort(Effort::Fast)),
                "balanced" => Some(Self::Effort(Effort::Balanced)),
                "dense" => Some(Self::Effort(Effort::Dense)),
                _ => None,
            },
            Key::Chunk => parse_chunk(text).ok().map(Self::Chunk),
            Key::Settle if text == "on" => Some(Self::Settle(Settle::On)),
            Key::Settle => match parse_settle(text) {
                Ok(None) => Some(Self::Settle(Settle::Off)),
                Ok(Some(quiet)) => Some(Self::Settle(Settle::After(quiet))),
                Err(_) => None,
            },
            Key::Region => is_name(text).then(|| Self::Region(text.to_owned())),
            Key::Durability => match text {
                "normal" => Some(Self::Durability(Durability::Normal)),
                "sync" => Some(Self::Durability(Durability::Sync)),
                _ => None,
            },
        });
        value.ok_or_else(|| {
            let shown = &bytes[..bytes.len().min(SHOWN)];
            let more = if bytes.len() > SHOWN { "..." } else { "" };
            BadValue {
                key,
                value: format!("{}{more}", shown.escape_ascii()),
            }
        })
    }

    /// The policy of the value.
    #[must_use]
    pub fn key(&self) -> Key {
        match self {
            Self::Codec(_) => Key::Codec,
            Self::Effort(_) => Key::Effort,
            Self::Chunk(_) => Key::Chunk,
            Self::Settle(_) => Key::Settle,
            Self::SettleCodec(_) => Key::SettleCodec,
            Self::Region(_) => Key::Region,
            Self::Durability(_) => Key::Durability,
        }
    }
}

/// Two blanks end a value in the text that explains policies.
fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.trim() == text
        && !text.contains("  ")
        && !text.contains(char::is_control)
}

impl Codec {
    fn parse(text: &str) -> Option<Self> {
        match (text, text.parse()) {
            ("auto", _) => Some(Self::Auto),
            (_, Ok(Effort::None)) => Some(Self::None),
            (_, Ok(Effort::Lz4)) => Some(Self::Lz4),
            (_, Ok(Effort::Zstd(level))) => Some(Self::Zstd(level)),
            _ => None,
        }
    }

    /// The effort for the encoder; `auto` when the encoder chooses.
    pub(crate) fn effort(self, auto: Effort) -> Effort {
        match self {
            Self::Auto => auto,
            Self::None => Effort::None,
            Self::Lz4 => Effort::Lz4,
            Self::Zstd(level) => Effort::Zstd(level),
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            other => other.effort(Effort::Fast).fmt(f),
        }
    }
}

impl fmt::Display for Settle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::On => f.write_str("on"),
            Self::After(quiet) => quiet.as_secs().fmt(f),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Codec(codec) | Self::SettleCodec(codec) => codec.fmt(f),
            Self::Effort(effort) => effort.fmt(f),
            Self::Chunk(bytes) if bytes % (1 << 20) == 0 => write!(f, "{}M", bytes >> 20),
            Self::Chunk(bytes) => write!(f, "{}K", bytes >> 10),
            Self::Settle(settle) => settle.fmt(f),
            Self::Region(name) => f.write_str(name),
            Self::Durability(Durability::Normal) => f.write_str("normal"),
            Self::Durability(Durability::Sync) => f.write_str("sync"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_value_survives_text() {
        for (key, texts) in [
            (
                Key::Codec,
                &["auto", "none", "lz4", "zstd:1", "zstd:19"][..],
            ),
            (Key::SettleCodec, &["auto", "none", "lz4", "zstd:7"]),
            (Key::Effort, &["fast", "balanced", "dense"]),
            (Key::Chunk, &["64K", "512K", "1M", "16M"]),
            (Key::Settle, &["off", "on", "0", "60", "31622400"]),
            (Key::Region, &["mask", "/ocean/basin mask", "Maske_\u{e4}"]),
            (Key::Durability, &["normal", "sync"]),
        ] {
            for text in texts {
                let value = Value::parse(key, text.as_bytes()).unwrap();
                assert_eq!(value.key(), key);
                assert_eq!(value.to_string(), *text);
            }
        }
        let value = Value::parse(Key::Chunk, b"4096KiB").unwrap();
        assert_eq!(value.to_string(), "4M", "said in one way");
    }

    #[test]
    fn other_values_are_refused_with_a_reason() {
        for (key, texts) in [
            (
                Key::Codec,
                &[
                    "", "Auto", "fast", "zstd", "zstd:0", "zstd:20", "lz4\n", "auto\0",
                ][..],
            ),
            (Key::Effort, &["", "none", "lz4", "dense "]),
            (
                Key::Chunk,
                &["", "32K", "32M", "3M", "-1M", "1M\n", "65537"],
            ),
            (Key::Settle, &["", "-1", "never", "31622401", "1.5", "10s"]),
            (Key::Region, &["", " a", "a ", "a  b", "a\tb", "a\nb"]),
            (Key::Durability, &["", "fsync", "SYNC"]),
        ] {
            for text in texts {
                let refusal = Value::parse(key, text.as_bytes()).unwrap_err().to_string();
                assert!(refusal.contains(key.wanted()), "{refusal}");
                assert!(!refusal.contains(char::is_control), "{refusal:?}");
            }
        }
        assert!(Value::parse(Key::Region, &[b'x'; 255]).is_ok());
        let refusal = Value::parse(Key::Region, &[b'x'; 256]).unwrap_err();
        assert!(refusal.to_string().len() < 250, "{refusal}");
        assert!(Value::parse(Key::Region, b"\xff").is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>, text: String, which in 0..Key::ALL.len()) {
            let key = Key::ALL[which];
            for bytes in [&bytes[..], text.as_bytes()] {
                match Value::parse(key, bytes) {
                    Ok(value) => {
                        let said = value.to_string();
                        prop_assert_eq!(Value::parse(key, said.as_bytes()), Ok(value));
                        prop_assert!(!said.contains(char::is_control) && !said.contains("  "));
                    }
                    Err(refusal) => prop_assert!(refusal.to_string().is_ascii()),
                }
            }
        }

        #[test]
        fn numbers_of_any_size_never_panic(number: u128, unit in "[KMGT]?i?B?") {
            for key in Key::ALL {
                let _ = Value::parse(key, format!("{number}{unit}").as_bytes());
                let _ = Value::parse(key, format!("zstd:{number}").as_bytes());
            }
        }
    }
}
