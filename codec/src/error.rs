//! Errors of the codec.
#![forbid(unsafe_code)]

/// Why a chunk was not encoded or a frame not decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The chunk is larger than a frame may hold.
    #[error("chunk of {len} bytes is larger than the {max} a frame may hold")]
    ChunkTooLarge {
        /// Length given.
        len: usize,
        /// Largest length accepted.
        max: usize,
    },
    /// The bytes do not begin with a frame's magic.
    #[error("no frame begins here")]
    NotAFrame,
    /// The bytes are fewer or more than the frame's.
    #[error("frame of {expected} bytes, but {found} were given")]
    WrongLength {
        /// Length that the frame claims or needs.
        expected: usize,
        /// Length given.
        found: usize,
    },
    /// Written by a later version of the format.
    #[error("frame format version {found}, this build reads up to {supported}")]
    UnknownVersion {
        /// Version in the header.
        found: u8,
        /// Latest version known.
        supported: u8,
    },
    /// A checksum does not match its bytes.
    #[error("{part} checksum is {found:#x}, expected {expected:#x}")]
    Checksum {
        /// Which part of the frame.
        part: &'static str,
        /// Checksum recorded.
        expected: u64,
        /// Checksum of the bytes found.
        found: u64,
    },
    /// The checksums match but the contents contradict themselves.
    #[error("malformed frame: {0}")]
    Malformed(&'static str),
    /// A general-purpose coder rejected its input.
    #[error("{coder}: {reason}")]
    Coder {
        /// Which coder.
        coder: &'static str,
        /// What it said.
        reason: &'static str,
    },
    /// The range asked for is not inside the chunk.
    #[error("range {start}+{len} is outside a chunk of {raw_len} bytes")]
    Range {
        /// First byte asked for.
        start: usize,
        /// Number of bytes asked for.
        len: usize,
        /// Length of the chunk.
        raw_len: usize,
    },
}
