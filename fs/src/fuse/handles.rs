//! Handles of open files, by the number that the kernel knows.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fuser::FileHandle;
use parking_lot::RwLock;

use crate::{Error, Fs, Handle};

/// The open handles of a mount.
pub(super) struct Handles {
    fs: Arc<Fs>,
    open: RwLock<HashMap<u64, Arc<Handle>>>,
    last: AtomicU64,
}

/// A handle that a request uses. The file can be closed as soon as the request is answered, before
/// this is dropped: the last holder gives the file back.
pub(super) struct HandleRef {
    fs: Arc<Fs>,
    handle: Option<Arc<Handle>>,
}

impl Deref for HandleRef {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        self.handle.as_deref().expect("taken by drop alone")
    }
}

impl Drop for HandleRef {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take().and_then(Arc::into_inner) {
            self.fs.release(handle);
        }
    }
}

impl Handles {
    pub(super) fn new(fs: Arc<Fs>) -> Self {
        Self {
            fs,
            open: RwLock::default(),
            last: AtomicU64::new(0),
        }
    }

    pub(super) fn keep(&self, handle: Handle) -> FileHandle {
        if handle.access.writes {
            self.fs.begin_writer(handle.ino());
        }
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        self.open.write().insert(number, Arc::new(handle));
        FileHandle(number)
    }

    pub(super) fn get(&self, handle: FileHandle) -> Result<HandleRef, Error> {
        match self.open.read().get(&handle.0) {
            Some(handle) => Ok(self.in_use(Arc::clone(handle))),
            None => Err(Error::BadHandle),
        }
    }

    /// The kernel has closed a handle.
    pub(super) fn remove(&self, handle: FileHandle) {
        let Some(handle) = self.open.write().remove(&handle.0) else {
            return;
        };
        if handle.access.writes {
            self.fs.end_writer(handle.ino());
        }
        drop(self.in_use(handle));
    }

    fn in_use(&self, handle: Arc<Handle>) -> HandleRef {
        HandleRef {
            fs: Arc::clone(&self.fs),
            handle: Some(handle),
        }
    }
}

#[cfg(test)]
mod tests {
    use shale_index::ROOT;

    use super::*;
    use crate::testing::file_system;
    use crate::{Access, Caller};

    #[test]
    fn a_file_closed_while_a_request_still_has_its_handle_is_given_back() {
        let dir = tempfile::tempdir().unwrap();
        let fs = file_system(dir.path());
        let handles = Handles::new(Arc::clone(&fs));
        let made = fs.create(&Caller::default(), ROOT, b"file", 0o600, Access::WRITE);
        let number = handles.keep(made.unwrap().1);
        let in_use = handles.get(number).unwrap();
        handles.remove(number);
        assert_eq!(fs.store().gauges().files, 1);
        drop(in_use);
        assert_eq!(fs.store().gauges().files, 0);
        assert!(handles.get(number).is_err());
        fs.store().shut_down().unwrap();
    }
}
