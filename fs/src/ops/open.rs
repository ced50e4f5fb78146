//! Open files.

use crate::{Error, Fs, Handle};

impl Fs {
    /// Opens a regular file, for writing if `writes`.
    ///
    /// # Errors
    /// `ENOENT`, `EROFS`, or when the store fails.
    pub fn open(&self, ino: u64, writes: bool) -> Result<Handle, Error> {
        if writes {
            self.store.check_writable()?;
        }
        let handle = Handle::new(self.store.file(ino)?, writes);
        if writes {
            self.follow_policy(&handle)?;
        }
        Ok(handle)
    }

    /// Whether what is written through a handle has to be durable when it is closed.
    ///
    /// # Errors
    /// When the store fails.
    pub fn wants_sync(&self, handle: &Handle) -> Result<bool, Error> {
        Ok(handle.writes && self.follow_policy(handle)?)
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
