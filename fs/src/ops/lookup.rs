//! Looking names up.

use shale_index::Ino;

use crate::{Attr, Error, Fs};

impl Fs {
    /// The attributes of a name in a directory. `.` and `..` are answered too, for NFS file handles
    /// that outlive the kernel's cache.
    ///
    /// # Errors
    /// `ENOENT`, `ENAMETOOLONG`, or when the store fails.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr, Error> {
        let current = match name {
            b"." => self.store.stat(parent)?,
            b".." => self.store.stat(self.inode(parent)?.parent)?,
            _ => self.store.look_up(parent, name)?,
        };
        Ok(current.into())
    }
}
