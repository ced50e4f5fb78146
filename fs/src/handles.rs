//! Handles of open files, by the number that the kernel knows.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fuser::FileHandle;
use parking_lot::RwLock;

use crate::error::refused;
use crate::{Error, Fs, Handle};

#[derive(Default)]
pub(crate) struct Handles {
    open: RwLock<HashMap<u64, Arc<Handle>>>,
    last: AtomicU64,
}

impl Handles {
    pub(crate) fn keep(&self, fs: &Fs, handle: Handle) -> FileHandle {
        if handle.writes {
            fs.begin_writer(handle.ino());
        }
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.open.write().insert(number, Arc::new(handle));
        FileHandle(number)
    }

    pub(crate) fn get(&self, handle: FileHandle) -> Result<Arc<Handle>, Error> {
        match self.open.read().get(&handle.0) {
            Some(handle) => Ok(Arc::clone(handle)),
            None => refused(libc::EBADF),
        }
    }

    pub(crate) fn remove(&self, handle: FileHandle) -> Option<Arc<Handle>> {
        self.open.write().remove(&handle.0)
    }
}
