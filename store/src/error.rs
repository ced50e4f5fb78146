//! Errors of the store.

use std::io;
use std::path::PathBuf;

use shale_index as index;

/// What can go wrong in the store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The backing directory refused.
    #[error("{action} {path}: {source}", path = path.display())]
    Io {
        /// What was being done ("append to", "read", ...).
        action: &'static str,
        /// The file concerned.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// Stored bytes that are not what was written.
    #[error("inode {ino}, offset {offset}: frame at {at} of pack {pack:x} is damaged: {detail}")]
    Damaged {
        /// The file it belongs to.
        ino: u64,
        /// Where in the file.
        offset: u64,
        /// The pack.
        pack: u64,
        /// Where in the pack.
        at: u64,
        /// What was expected and found.
        detail: String,
    },
    /// The index failed or refused.
    #[error(transparent)]
    Index(#[from] index::Error),
    /// A chunk could not be encoded.
    #[error("encoding a chunk: {0}")]
    Codec(#[from] shale_codec::Error),
    /// The directory is not a store, or not one that can be used.
    #[error("{path}: {reason}", path = path.display())]
    NotAStore {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it and what to do.
        reason: String,
    },
    /// The store is sound, but of a format that this program does not know.
    #[error(
        "{path}: the store has format version {version}, this program knows version {known}; \
         use the program that wrote it",
        path = path.display()
    )]
    UnknownFormat {
        /// The store.
        path: PathBuf,
        /// Its version.
        version: u32,
        /// The version that would be known.
        known: u32,
    },
    /// Somebody else has the store.
    #[error("{path} is already in use by {holder}; unmount it, or wait for its end, and try again", path = path.display())]
    Locked {
        /// The store.
        path: PathBuf,
        /// Process and mount point of the holder.
        holder: String,
    },
    /// Bytes that were accepted from a program and could not be stored.
    #[error("inode {ino}, offset {offset}: these bytes could not be stored and are lost")]
    Lost {
        /// The file.
        ino: u64,
        /// Where in the file somebody wanted to read.
        offset: u64,
    },
    /// The operation is refused; the code is the errno to answer.
    #[error("{}", io::Error::from_raw_os_error(*.0))]
    Refused(i32),
    /// The directory of the store was removed while it was in use.
    #[error("the store {path} has been removed: nothing can become durable", path = path.display())]
    Removed {
        /// Where it was.
        path: PathBuf,
    },
    /// A worker panicked; nothing can be relied upon any more.
    #[error("the store stopped after an internal error; unmount it and look into its log")]
    Poisoned,
}

impl Error {
    /// The errno that tells an application about this error.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Io { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
            Self::Index(error) => error.errno(),
            Self::Refused(errno) => *errno,
            Self::Locked { .. } => libc::EBUSY,
            Self::Damaged { .. }
            | Self::Lost { .. }
            | Self::Codec(_)
            | Self::NotAStore { .. }
            | Self::UnknownFormat { .. }
            | Self::Removed { .. }
            | Self::Poisoned => libc::EIO,
        }
    }

    /// Whether the log has told of it once, so that it need not for each who is refused.
    #[must_use]
    pub fn is_known(&self) -> bool {
        matches!(
            self,
            Self::Lost { .. } | Self::Removed { .. } | Self::Index(index::Error::Fenced(_))
        )
    }

    /// Whether the device, or the share of it that this process may use, is full.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self.errno(), libc::ENOSPC | libc::EDQUOT)
    }

    /// Whether a file was not there: a pack that has been collected, most likely.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    pub(crate) fn io(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }
}
