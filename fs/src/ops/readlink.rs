//! Targets of symbolic links.

use shale_store::index::schema::{S_IFLNK, S_IFMT};

use crate::error::refused;
use crate::{Error, Fs};

impl Fs {
    /// Where a symbolic link leads.
    ///
    /// # Errors
    /// `EINVAL` when it is not one, or when the store fails.
    pub fn readlink(&self, ino: u64) -> Result<Vec<u8>, Error> {
        let inode = self.namespace().inode(ino)?;
        if inode.mode & S_IFMT != S_IFLNK {
            return refused(libc::EINVAL);
        }
        Ok(inode.target)
    }
}
