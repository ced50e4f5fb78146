//! Targets of symbolic links.

use shale_index::Ino;
use shale_index::schema::{S_IFLNK, S_IFMT};

use crate::{Error, Fs};

impl Fs {
    /// Where a symbolic link leads.
    ///
    /// # Errors
    /// `EINVAL` when it is not one, or when the store fails.
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>, Error> {
        let inode = self.inode(ino)?;
        if inode.mode & S_IFMT != S_IFLNK {
            return Err(Error::Invalid("symbolic link"));
        }
        Ok(inode.target)
    }
}
