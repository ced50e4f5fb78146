//! Names, links and extended attributes: the operations of a file system on the index.
//!
//! The index stays behind the store. [`Store::stat`] and [`Store::set_attr`] handle attributes that
//! depend on the contents of files, such as sizes and times.

use std::sync::Arc;

use shale_index::schema::{Inode, Rollup};
use shale_index::{DirEntry, Ino, NewNode, Removed, RenameMode, Renamed, Xattr, XattrMode};

use super::Store;
use crate::Error;
use crate::file::{CurrentInode, File};

impl Store {
    /// Creates an inode of any type with its first name; the caller derives it from the inode of
    /// the directory.
    ///
    /// # Errors
    /// As mknod(2), or when the index fails.
    pub fn create(
        &self,
        parent: Ino,
        name: &[u8],
        node: impl Fn(&Inode) -> NewNode,
    ) -> Result<Inode, Error> {
        Ok(self.namespace().create_with(parent, name, node)?)
    }

    /// Creates a regular file and opens it, as [`Store::file`] does.
    ///
    /// # Errors
    /// As mknod(2), or when the index fails.
    pub fn create_file(
        &self,
        parent: Ino,
        name: &[u8],
        node: impl Fn(&Inode) -> NewNode,
    ) -> Result<(Inode, Arc<File>), Error> {
        self.files.get_created(|| self.create(parent, name, node))
    }

    /// Gives an inode another name.
    ///
    /// # Errors
    /// As link(2), or when the index fails.
    pub fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Inode, Error> {
        Ok(self.namespace().link(ino, parent, name)?)
    }

    /// Removes a name of anything but a directory.
    ///
    /// # Errors
    /// As unlink(2), or when the index fails.
    pub fn unlink(&self, parent: Ino, name: &[u8]) -> Result<Removed, Error> {
        Ok(self.namespace().unlink(parent, name)?)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As rmdir(2), or when the index fails.
    pub fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<Removed, Error> {
        Ok(self.namespace().rmdir(parent, name)?)
    }

    /// Moves a name.
    ///
    /// # Errors
    /// As renameat2(2), or when the index fails.
    pub fn rename(
        &self,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        mode: RenameMode,
    ) -> Result<Renamed, Error> {
        let namespace = self.namespace();
        Ok(namespace.rename(parent, name, new_parent, new_name, mode)?)
    }

    /// At most `limit` entries of a directory after a cookie; 0 begins.
    ///
    /// # Errors
    /// When the index fails.
    pub fn readdir(&self, dir: Ino, cookie: u64, limit: usize) -> Result<Vec<DirEntry>, Error> {
        Ok(self.namespace().readdir(dir, cookie, limit)?)
    }

    /// The inodes of listed entries, with what has been written to them; `None` for those that are
    /// gone.
    ///
    /// # Errors
    /// When the index fails.
    pub fn stat_listed(&self, entries: &[DirEntry]) -> Result<Vec<Option<CurrentInode>>, Error> {
        self.files.stat_listed(entries)
    }

    /// The value of an extended attribute; `None` when it is not there.
    ///
    /// # Errors
    /// When the index fails.
    pub fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.namespace().xattr(ino, name)?)
    }

    /// The extended attributes whose names begin with a prefix.
    ///
    /// # Errors
    /// When the index fails.
    pub fn xattrs_with(&self, ino: Ino, prefix: &[u8]) -> Result<Vec<Xattr>, Error> {
        Ok(self.namespace().xattrs_with(ino, prefix)?)
    }

    /// The names of all extended attributes.
    ///
    /// # Errors
    /// [`shale_index::Error::NotFound`], or when the index fails.
    pub fn xattr_names(&self, ino: Ino) -> Result<Vec<Vec<u8>>, Error> {
        Ok(self.namespace().xattr_names(ino)?)
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// As setxattr(2), or when the index fails.
    pub fn set_xattr(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<(), Error> {
        Ok(self.namespace().set_xattr(ino, name, value, mode)?)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// [`shale_index::Error::NoData`] when it is not there, or when the index fails.
    pub fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<(), Error> {
        Ok(self.namespace().remove_xattr(ino, name)?)
    }

    /// Where an inode is, from the root of the file system, for messages.
    #[must_use]
    pub fn path_of(&self, ino: Ino) -> String {
        self.namespace().path(ino)
    }

    /// Totals of everything below a directory, as committed.
    ///
    /// # Errors
    /// When the index fails.
    pub fn rollup(&self, dir: Ino) -> Result<Rollup, Error> {
        Ok(self.namespace().rollup(dir)?)
    }

    /// At most `limit` files that are stored but not settled, with numbers from `from` on.
    ///
    /// # Errors
    /// When the index fails.
    pub fn stored_files(&self, from: Ino, limit: usize) -> Result<Vec<Ino>, Error> {
        Ok(self.namespace().stored_files(from, limit)?)
    }

    /// At most `limit` files that settling did not make smaller, with numbers from `from` on.
    ///
    /// # Errors
    /// When the index fails.
    pub fn incompressible_files(&self, from: Ino, limit: usize) -> Result<Vec<Ino>, Error> {
        Ok(self.namespace().incompressible_files(from, limit)?)
    }
}

/// For tests.
#[cfg(feature = "testing")]
impl Store {
    /// The index as it is committed, without data that is still in memory.
    #[must_use]
    pub fn committed(&self) -> &shale_index::Namespace {
        self.namespace()
    }
}
