//! Removing names.

use shale_index::{Ino, Removed};

use crate::{Error, Fs};

impl Fs {
    /// Removes a name of anything but a directory.
    ///
    /// # Errors
    /// As unlink(2).
    pub fn unlink(&self, parent: Ino, name: &[u8]) -> Result<(), Error> {
        let removed = self.store.unlink(parent, name)?;
        self.after(removed);
        self.finish_names()
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As rmdir(2).
    pub fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<(), Error> {
        let removed = self.store.rmdir(parent, name)?;
        self.after(removed);
        self.finish_names()
    }

    pub(super) fn after(&self, removed: Removed) {
        if removed.orphaned {
            self.orphaned(removed.ino);
        } else {
            // It may belong to another directory now.
            self.policies.moved();
        }
    }
}
