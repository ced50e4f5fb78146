//! Opening and closing files.

use shale_index::Ino;

use crate::durability::{Change, Finish};
use crate::{Access, Error, Fs, Handle};

impl Fs {
    /// Opens a regular file.
    ///
    /// # Errors
    /// `ENOENT`, `EROFS`, or when the store fails.
    pub fn open(&self, ino: Ino, access: Access) -> Result<Handle, Error> {
        if access.writes {
            self.store.check_writable()?;
        }
        let handle = Handle::new(self.store.file(ino)?, access);
        if access.writes {
            self.follow_policy(&handle)?;
        }
        Ok(handle)
    }

    /// A descriptor of the handle is being closed: says when `close` may return.
    ///
    /// # Errors
    /// A failure of writing behind that this handle has not reported yet. Where the file has to
    /// be synced first, the sync reports it.
    pub fn flush(&self, handle: &Handle) -> Result<Finish, Error> {
        if handle.access.writes {
            self.follow_policy(handle)?;
        }
        let finish = self.finish(handle, Change::Closing);
        if finish == Finish::Now {
            handle.report()?;
        }
        Ok(finish)
    }

    /// The last descriptor of a handle was closed.
    pub fn release(&self, handle: Handle) {
        self.store.close(handle.file);
    }
}
