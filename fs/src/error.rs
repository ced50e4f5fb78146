//! Errors of the file system.

use std::io;
use std::path::PathBuf;

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store failed or refused.
    #[error(transparent)]
    Store(#[from] shale_store::Error),
    /// The operation is refused; the code is the errno to answer.
    #[error("{}", io::Error::from_raw_os_error(*.0))]
    Refused(i32),
    /// The mount could not be made or ended.
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
    /// The errno that tells an application about this error.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            Self::Store(error) => error.errno(),
            Self::Refused(errno) => *errno,
            Self::Mount { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
        }
    }
}

impl From<shale_store::index::Error> for Error {
    fn from(error: shale_store::index::Error) -> Self {
        Self::Store(error.into())
    }
}

pub(crate) fn refused<T>(errno: i32) -> Result<T, Error> {
    Err(Error::Refused(errno))
}
