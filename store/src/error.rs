//! Errors of the store.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use shale_index as index;
use shale_index::Ino;
use shale_index::extent::PackId;

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
    /// Stored bytes that differ from those written.
    #[error("inode {ino}, offset {offset}: frame at {at} of pack {pack:x} is damaged: {detail}")]
    Damaged {
        /// The file it belongs to.
        ino: Ino,
        /// Where in the file.
        offset: u64,
        /// The pack.
        pack: PackId,
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
        /// What is wrong and what to do.
        reason: String,
    },
    /// The store is sound, but this program does not know its format.
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
        /// The version that this program knows.
        known: u32,
    },
    /// Another process uses the store.
    #[error("{path} is already in use by {holder}; unmount it, or wait until that process ends, and try again", path = path.display())]
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
        ino: Ino,
        /// Where in the file.
        offset: u64,
    },
    /// The file of a pack does not exist. gc deletes a pack after it has moved the live frames: a
    /// reader looks them up again.
    #[error("the pack {} is missing", .pack.path().display())]
    PackGone {
        /// The pack.
        pack: PackId,
    },
    /// Data that was written earlier could not be stored.
    #[error("data written earlier could not be stored: {0}")]
    WriteBehind(Arc<Error>),
    /// Accepted data could not be made durable, after several attempts.
    #[error("the data could not be made durable")]
    NotDurable,
    /// The file was deleted.
    #[error("inode {ino} was deleted")]
    NotFound {
        /// The file.
        ino: Ino,
    },
    /// Only regular files have contents.
    #[error("inode {ino} is not a regular file")]
    NotAFile {
        /// The inode.
        ino: Ino,
    },
    /// No frame holds this byte of the extent.
    #[error("inode {ino}, offset {offset}: no frame holds this byte")]
    NoFrame {
        /// The file.
        ino: Ino,
        /// Where in the file.
        offset: u64,
    },
    /// A file cannot be that large.
    #[error("file too large")]
    TooLarge,
    /// The device has no room for it.
    #[error("no space left on the device of the store")]
    NoSpace,
    /// The quota of the user who runs this process is used up.
    #[error("the disk quota of the store is exceeded")]
    QuotaExceeded,
    /// The store was opened to read only.
    #[error("the store is read-only")]
    ReadOnly,
    /// The directory of the store was removed while it was in use.
    #[error("the store {path} has been removed: nothing can become durable", path = path.display())]
    Removed {
        /// Where it was.
        path: PathBuf,
    },
    /// The store is being shut down, or has been.
    #[error("the store is shut down")]
    ShutDown,
    /// A worker panicked; the state can no longer be trusted.
    #[error("the store stopped after an internal error; unmount it and look into its log")]
    Poisoned,
}

impl Error {
    /// Whether the log has already reported it, so that it need not report it for each program that
    /// gets it.
    #[must_use]
    pub fn is_known(&self) -> bool {
        match self {
            Self::Lost { .. } | Self::Removed { .. } | Self::Index(index::Error::Fenced(_)) => true,
            Self::WriteBehind(cause) => cause.is_known(),
            _ => false,
        }
    }

    /// Whether the device, or the share of it that this process may use, is full.
    pub(crate) fn is_full(&self) -> bool {
        let is_full = |source: &io::Error| {
            matches!(
                source.kind(),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
            )
        };
        match self {
            Self::NoSpace | Self::QuotaExceeded => true,
            Self::Io { source, .. } | Self::Index(index::Error::Io { source, .. }) => {
                is_full(source)
            }
            Self::WriteBehind(cause) => cause.is_full(),
            _ => false,
        }
    }

    /// An error for accepted data that could not be stored, with its cause.
    pub(crate) fn write_behind(cause: &Arc<Self>) -> Self {
        match &**cause {
            Self::WriteBehind(first) => Self::WriteBehind(Arc::clone(first)),
            _ => Self::WriteBehind(Arc::clone(cause)),
        }
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
