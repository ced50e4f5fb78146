//! Errors of the file system, and the errno of each.

use std::io;
use std::path::PathBuf;

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store failed or refused.
    #[error(transparent)]
    Store(#[from] shale_store::Error),
    /// The request is invalid; names the part.
    #[error("invalid {0}")]
    Invalid(&'static str),
    /// The request is not supported.
    #[error("not supported")]
    NotSupported,
    /// Only root, the owner, or the user who mounted may do this.
    #[error("not permitted")]
    NotPermitted,
    /// A default access control list belongs to directories only.
    #[error("only directories have default access control lists")]
    AclOfFile,
    /// There is no open file with this number.
    #[error("no such open file")]
    BadHandle,
    /// It is a directory.
    #[error("is a directory")]
    IsDirectory,
    /// There is no such attribute or report.
    #[error("no such attribute")]
    NoAttribute,
    /// A name or the target of a link is too long.
    #[error("name too long")]
    NameTooLong,
    /// A file cannot be that large.
    #[error("file too large")]
    TooLarge,
    /// The device has no room for it.
    #[error("no space left on the device of the store")]
    NoSpace,
    /// There is neither data nor a hole after the offset.
    #[error("offset beyond the end of the file")]
    NothingBehind,
    /// The file is being written.
    #[error("the file is being written")]
    BeingWritten,
    /// A report of the same kind is in progress.
    #[error("another report is in progress; try again")]
    ReportBusy,
    /// The operation panicked.
    #[error("an internal error occurred; see the log")]
    Panicked,
    /// The mount could not be started or ended.
    #[error("{action} {path}: {source}", path = path.display())]
    Mount {
        /// What was being done.
        action: &'static str,
        /// The mount point.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

impl Error {
    /// The errno for a program.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Store(error) => errno_of_store(error),
            Self::Invalid(_) => libc::EINVAL,
            Self::NotSupported => libc::EOPNOTSUPP,
            Self::NotPermitted => libc::EPERM,
            Self::AclOfFile => libc::EACCES,
            Self::BadHandle => libc::EBADF,
            Self::IsDirectory => libc::EISDIR,
            Self::NoAttribute => libc::ENODATA,
            Self::NameTooLong => libc::ENAMETOOLONG,
            Self::TooLarge => libc::EFBIG,
            Self::NoSpace => libc::ENOSPC,
            Self::NothingBehind => libc::ENXIO,
            Self::BeingWritten => libc::EBUSY,
            Self::ReportBusy => libc::EAGAIN,
            Self::Panicked => libc::EIO,
            Self::Mount { source, .. } => errno_of_system(source),
        }
    }
}

/// Conditions that operations check.
impl Error {
    /// Whether the inode or name that the operation is about does not exist.
    pub(crate) fn is_missing(&self) -> bool {
        match self {
            Self::Store(shale_store::Error::Index(error)) => {
                matches!(error, shale_index::Error::NotFound)
            }
            Self::Store(shale_store::Error::NotFound { .. }) => true,
            _ => false,
        }
    }

    /// Whether stored bytes are damaged or out of reach.
    pub(crate) fn is_unreadable(&self) -> bool {
        use shale_store::Error as E;
        match self {
            Self::Store(E::Damaged { .. } | E::PackGone { .. } | E::Codec(_)) => true,
            Self::Store(E::Io { source, .. }) => errno_of_system(source) == libc::EIO,
            _ => false,
        }
    }

    /// Whether a pack was collected between look-up and read.
    pub(crate) fn is_pack_gone(&self) -> bool {
        matches!(self, Self::Store(shale_store::Error::PackGone { .. }))
    }
}

impl From<shale_index::Error> for Error {
    fn from(error: shale_index::Error) -> Self {
        Self::Store(error.into())
    }
}

fn errno_of_store(error: &shale_store::Error) -> i32 {
    use shale_store::Error as E;
    match error {
        E::Io { source, .. } => errno_of_system(source),
        E::Index(error) => errno_of_index(error),
        E::WriteBehind(cause) => errno_of_store(cause),
        E::Locked { .. } => libc::EBUSY,
        E::NotFound { .. } => libc::ENOENT,
        E::NotAFile { .. } | E::NoFrame { .. } => libc::EINVAL,
        E::TooLarge => libc::EFBIG,
        E::NoSpace => libc::ENOSPC,
        E::QuotaExceeded => libc::EDQUOT,
        E::ReadOnly => libc::EROFS,
        E::Damaged { .. }
        | E::Lost { .. }
        | E::Codec(_)
        | E::NotAStore { .. }
        | E::UnknownFormat { .. }
        | E::PackGone { .. }
        | E::NotDurable
        | E::Removed { .. }
        | E::ShutDown
        | E::Poisoned => libc::EIO,
    }
}

fn errno_of_index(error: &shale_index::Error) -> i32 {
    use shale_index::Error as E;
    match error {
        E::Io { source, .. } => errno_of_system(source),
        E::Corrupt { .. }
        | E::Format { .. }
        | E::Closed(_)
        | E::Fenced(_)
        | E::Stalled
        | E::SessionEnded(_)
        | E::OutcomeUnknown(_)
        | E::Unavailable(_)
        | E::Refused(_)
        | E::KeyTwice(_)
        | E::TooManyOps { .. } => libc::EIO,
        E::ReadOnly => libc::EROFS,
        E::CannotFollow => libc::EOPNOTSUPP,
        E::Conflict | E::Stale => libc::EAGAIN,
        E::CommitTooLarge { .. } => libc::EFBIG,
        E::KeyTooLong { .. } | E::NameTooLong => libc::ENAMETOOLONG,
        E::ForeignLease | E::InvalidName | E::Loop => libc::EINVAL,
        E::NotFound => libc::ENOENT,
        E::Exists => libc::EEXIST,
        E::NotDirectory => libc::ENOTDIR,
        E::IsDirectory => libc::EISDIR,
        E::NotEmpty => libc::ENOTEMPTY,
        E::IsRoot | E::StillNamed => libc::EBUSY,
        E::LinkToDirectory => libc::EPERM,
        E::TooManyLinks => libc::EMLINK,
        E::NoData => libc::ENODATA,
        E::InvalidAttribute => libc::ERANGE,
        E::TooLarge => libc::E2BIG,
        E::AttributesFull => libc::ENOSPC,
    }
}

fn errno_of_system(source: &io::Error) -> i32 {
    source.raw_os_error().unwrap_or(libc::EIO)
}
