//! Open files.

use crate::{Error, Fs, Handle};

impl Fs {
    /// Opens a regular file.
    ///
    /// # Errors
    /// `ENOENT`, or when the store fails.
    pub fn open(&self, ino: u64) -> Result<Handle, Error> {
        Ok(Handle::new(self.store.file(ino)?))
    }

    /// A descriptor of the handle is being closed: reports what went wrong behind.
    ///
    /// # Errors
    /// A failure of writing behind that this handle has not reported yet.
    pub fn flush(&self, handle: &Handle) -> Result<(), Error> {
        handle.report()
    }

    /// The last descriptor of a handle has gone.
    pub fn release(&self, handle: Handle) {
        self.store.close(handle.file);
    }
}
