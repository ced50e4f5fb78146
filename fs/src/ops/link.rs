//! Hard links.

use crate::{Attr, Error, Fs};

impl Fs {
    /// Gives an inode another name.
    ///
    /// # Errors
    /// As link(2).
    pub fn link(&self, ino: u64, parent: u64, name: &[u8]) -> Result<Attr, Error> {
        self.store.admit_names()?;
        self.store.link(ino, parent, name)?;
        self.finish_names()?;
        self.getattr(ino)
    }
}
