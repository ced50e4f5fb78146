//! Errors of the index.

use std::io;
use std::path::PathBuf;

/// What can go wrong in the index.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The backing store refused.
    #[error("{action} {path}: {source}", path = path.display())]
    Io {
        /// What was being done ("append to", "sync", ...).
        action: &'static str,
        /// The file concerned, relative to the store.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// Bytes that fail their checksum or do not decode.
    #[error("{what} is damaged: {detail}")]
    Corrupt {
        /// Which record, with its key or position.
        what: String,
        /// What was expected and found.
        detail: String,
    },
    /// A format version that this program does not know.
    #[error("{what} has format version {found}, this program knows {known}")]
    Format {
        /// Which file.
        what: String,
        /// The version found.
        found: u32,
        /// The newest version known.
        known: u32,
    },
    /// The engine was closed or has failed for good.
    #[error("the index is closed: {0}")]
    Closed(String),
    /// Nothing may be changed any more.
    #[error("the index takes no changes: {0}")]
    Fenced(String),
    /// The operation is refused for what the namespace holds; the code is the errno to answer.
    #[error("{}", io::Error::from_raw_os_error(*.0))]
    Refused(i32),
}

impl Error {
    /// The errno that tells an application about this error.
    #[must_use]
    pub fn errno(&self) -> i32 {
        const EIO: i32 = 5;
        match self {
            Self::Refused(errno) => *errno,
            Self::Io { source, .. } => source.raw_os_error().unwrap_or(EIO),
            Self::Corrupt { .. } | Self::Format { .. } | Self::Closed(_) | Self::Fenced(_) => EIO,
        }
    }
}
