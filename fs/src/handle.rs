//! Open files.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shale_index::Ino;
use shale_store::File;

use crate::Error;
use crate::policy::HandlePolicy;

/// What a file is opened for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// The handle may write.
    pub writes: bool,
    /// Data written through the handle is durable when the call returns (`O_SYNC`).
    pub sync: bool,
}

impl Access {
    /// To read only.
    pub const READ: Self = Self {
        writes: false,
        sync: false,
    };
    /// To write, and perhaps to read.
    pub const WRITE: Self = Self {
        writes: true,
        sync: false,
    };
}

/// An open regular file.
#[derive(Debug)]
pub struct Handle {
    pub(crate) file: Arc<File>,
    /// The last failure of write-behind that this handle has reported.
    seen: AtomicU64,
    pub(crate) access: Access,
    pub(crate) policy: HandlePolicy,
}

impl Handle {
    pub(crate) fn new(file: Arc<File>, access: Access) -> Self {
        let seen = AtomicU64::new(file.failure().seq());
        Self {
            file,
            seen,
            access,
            policy: HandlePolicy::default(),
        }
    }

    pub(crate) fn ino(&self) -> Ino {
        self.file.ino()
    }

    /// Reports a failure of write-behind, each one once.
    pub(crate) fn report(&self) -> Result<(), Error> {
        let failure = self.file.failure();
        if self.seen.swap(failure.seq(), Ordering::SeqCst) < failure.seq()
            && let Some(cause) = failure.error()
        {
            return Err(cause.into());
        }
        Ok(())
    }
}
