//! Names to inodes.

use crate::{Attr, Error, Fs};

impl Fs {
    /// What a name in a directory stands for. `.` and `..` are answered too, for file handles
    /// that outlive the kernel's cache.
    ///
    /// # Errors
    /// `ENOENT`, `ENAMETOOLONG`, or when the store fails.
    pub fn lookup(&self, parent: u64, name: &[u8]) -> Result<Attr, Error> {
        let seen = match name {
            b"." => self.store.inode(parent)?,
            b".." => self.store.inode(self.namespace().inode(parent)?.parent)?,
            _ => self.store.look_up(parent, name)?,
        };
        Ok(self.attr(seen))
    }
}
