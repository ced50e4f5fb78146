//! Further names.

use crate::{Attr, Error, Fs};

impl Fs {
    /// Gives an inode another name.
    ///
    /// # Errors
    /// As link(2).
    pub fn link(&self, ino: u64, parent: u64, name: &[u8]) -> Result<Attr, Error> {
        let (inode, _) = self.namespace().link(ino, parent, name)?;
        Ok(self.attr(inode))
    }
}
