//! Why a layout is missing or incomplete.

use serde::{Serialize, Serializer};

/// What stopped a parser.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file does not begin like any known format.
    #[error("not a format that is understood")]
    NotRecognised,
    /// The source refused a read.
    #[error("reading {len} bytes at {offset}: {message}")]
    Io {
        /// First byte asked for.
        offset: u64,
        /// Number of bytes asked for.
        len: u64,
        /// What the source said.
        message: String,
    },
    /// The file names bytes that it does not have.
    #[error("{len} bytes at {offset} are not inside a file of {file_len}")]
    OutOfFile {
        /// First byte named.
        offset: u64,
        /// Number of bytes named.
        len: u64,
        /// Length of the file.
        file_len: u64,
    },
    /// A structure ends before its last field.
    #[error("{what} ends after {len} bytes")]
    Short {
        /// Which structure.
        what: &'static str,
        /// How long it is.
        len: u64,
    },
    /// A field contradicts the format.
    #[error("malformed {what}: {found:#x}")]
    Malformed {
        /// Which field.
        what: &'static str,
        /// What it holds.
        found: u64,
    },
    /// A part of the format that the parser does not read.
    #[error("{what} {found} is not understood")]
    Unsupported {
        /// Which part.
        what: &'static str,
        /// The version, class or type found.
        found: u64,
    },
    /// More bytes would have to be read than the budget allows.
    #[error("gave up after reading {limit} bytes")]
    ReadBudget {
        /// The budget.
        limit: u64,
    },
    /// Parsing took longer than the budget allows.
    #[error("gave up after {limit_ms} ms")]
    TimeBudget {
        /// The budget.
        limit_ms: u64,
    },
    /// The result would take more memory than the budget allows.
    #[error("gave up with {limit} bytes of results")]
    StructureBudget {
        /// The budget.
        limit: usize,
    },
    /// A parser has a bug.
    #[error("the parser panicked")]
    Panicked,
}

impl Error {
    /// Whether the error may go away when the file grows.
    pub(crate) fn is_about_len(&self) -> bool {
        matches!(self, Self::OutOfFile { .. })
    }

    /// Whether parsing anything further is pointless.
    pub(crate) fn is_final(&self) -> bool {
        matches!(
            self,
            Self::ReadBudget { .. }
                | Self::TimeBudget { .. }
                | Self::StructureBudget { .. }
                | Self::Io { .. }
        )
    }
}

impl Serialize for Error {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
