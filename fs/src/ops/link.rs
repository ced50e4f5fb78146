//! Hard links.

use shale_index::Ino;

use crate::{Attr, Error, Fs};

impl Fs {
    /// Gives an inode another name.
    ///
    /// # Errors
    /// As link(2).
    pub fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr, Error> {
        self.store.admit_names()?;
        self.store.link(ino, parent, name)?;
        self.finish_names()?;
        self.getattr(ino)
    }
}
