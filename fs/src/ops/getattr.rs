//! Attributes of an inode.

use shale_index::Ino;

use crate::{Attr, Error, Fs};

impl Fs {
    /// Attributes, with everything that has been written.
    ///
    /// # Errors
    /// `ENOENT`, or when the store fails.
    pub fn getattr(&self, ino: Ino) -> Result<Attr, Error> {
        Ok(self.store.stat(ino)?.into())
    }
}
