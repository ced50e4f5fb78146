//! Attributes of an inode.

use crate::{Attr, Error, Fs};

impl Fs {
    /// Attributes, with everything that has been written.
    ///
    /// # Errors
    /// `ENOENT`, or when the store fails.
    pub fn getattr(&self, ino: u64) -> Result<Attr, Error> {
        Ok(self.store.stat(ino)?.into())
    }
}
