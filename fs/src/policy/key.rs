//! The policies and their names.

/// A policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// How written data is encoded.
    Codec,
    /// How hard the codec `auto` tries while programs write.
    Effort,
    /// The chunk size of new files.
    Chunk,
    /// Whether and when files settle in the background.
    Settle,
    /// How files are encoded when they settle.
    SettleCodec,
    /// The variable that holds the mask of regions.
    Region,
    /// Whether closing a file makes it durable.
    Durability,
}

impl Key {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 7] = [
        Self::Codec,
        Self::Effort,
        Self::Chunk,
        Self::Settle,
        Self::SettleCodec,
        Self::Region,
        Self::Durability,
    ];

    /// Its name, which follows the prefix of an attribute.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Codec => "codec",
            Self::Effort => "effort",
            Self::Chunk => "chunk",
            Self::Settle => "settle",
            Self::SettleCodec => "settle.codec",
            Self::Region => "region",
            Self::Durability => "durability",
        }
    }

    /// The policy of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|key| key.name() == name)
    }

    /// The values it may have, to follow the word "give".
    #[must_use]
    pub fn wanted(self) -> &'static str {
        match self {
            Self::Codec | Self::SettleCodec => "auto, none, lz4, or zstd:1 to zstd:19",
            Self::Effort => "fast, balanced or dense",
            Self::Chunk => "a power of two from 64K to 16M",
            Self::Settle => "off, on, or seconds up to a year",
            Self::Region => {
                "the name of a variable: up to 255 bytes of printable text, blanks only one at a \
                 time and inside"
            }
            Self::Durability => "normal or sync",
        }
    }
}

/// Who sets a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authority {
    /// Root, who overrides users.
    Root,
    /// A user who may write.
    User,
}

impl Authority {
    /// Both, the stronger first.
    pub const ALL: [Self; 2] = [Self::Root, Self::User];

    /// The prefix of its attributes.
    #[must_use]
    pub fn prefix(self) -> &'static str {
        match self {
            Self::Root => "trusted.shale.",
            Self::User => "user.shale.",
        }
    }

    /// The attribute that holds a value.
    #[must_use]
    pub fn attribute(self, key: Key) -> String {
        format!("{}{}", self.prefix(), key.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_finds_its_key() {
        for key in Key::ALL {
            assert_eq!(Key::from_name(key.name()), Some(key));
        }
        for name in ["", "settle.", "settle.now", "stat", "effective", "Codec"] {
            assert_eq!(Key::from_name(name), None, "{name}");
        }
    }
}
