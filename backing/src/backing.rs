//! The traits that every device implements, and the types of their calls.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One entry of a backing directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackingEntry {
    /// Name without the directory.
    pub name: PathBuf,
    /// Whether it is a directory.
    pub is_dir: bool,
    /// Length in bytes (0 for a directory).
    pub len: u64,
}

/// Space of the device behind a store, as `statvfs(3)` reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Size of the file system in bytes.
    pub total: u64,
    /// Free bytes, including those reserved for root.
    pub free: u64,
    /// Free bytes that this process may use.
    pub available: u64,
    /// Inodes in all.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
}

/// Where the directory of a store is now, by the host's paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreLocation {
    /// Where it was found.
    AsFound,
    /// It was moved there.
    At(PathBuf),
    /// No path leads there: its file system was unmounted or covered by another mount, or the
    /// directory was removed.
    OutOfSight,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// An existing file, for reading only.
    Read,
    /// An existing file, for reading and writing.
    Write,
    /// A file that must not exist yet, for reading and writing (`O_EXCL`).
    CreateNew,
    /// The same for a file that grows in large steps until it is sealed ([`BackingFile::seal`]),
    /// and is then only read.
    CreatePack,
}

/// A directory tree that holds a store.
pub trait Backing: Send + Sync + std::fmt::Debug {
    /// Opens or creates a file.
    ///
    /// # Errors
    /// What the operating system says.
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn BackingFile>>;

    /// Renames a file, replacing one that has the new name.
    ///
    /// # Errors
    /// What the operating system says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file.
    ///
    /// # Errors
    /// What the operating system says.
    fn remove_file(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory that is empty.
    ///
    /// # Errors
    /// What the operating system says; a directory that is not empty is an error.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;

    /// Removes a directory with everything in it; a missing one is fine.
    ///
    /// # Errors
    /// What the operating system says.
    fn remove_dir_all(&self, path: &Path) -> io::Result<()>;

    /// Creates a directory and its parents; an existing one is fine.
    ///
    /// # Errors
    /// What the operating system says.
    fn create_dir_all(&self, path: &Path) -> io::Result<()>;

    /// Lists a directory, in no particular order.
    ///
    /// # Errors
    /// What the operating system says.
    fn list(&self, path: &Path) -> io::Result<Vec<BackingEntry>>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// What the operating system says.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;

    /// Space on the device.
    ///
    /// # Errors
    /// What the operating system says.
    fn space(&self) -> io::Result<Space>;

    /// Whether [`Backing::space`] still counts recently written bytes as free, until
    /// [`Backing::sync_space`].
    fn space_lags(&self) -> bool {
        false
    }

    /// Brings [`Backing::space`] up to date, which may take as long as a sync of the device.
    ///
    /// # Errors
    /// What the operating system says.
    fn sync_space(&self) -> io::Result<()> {
        Ok(())
    }

    /// Whether a file that existed is missing. False if that cannot be known.
    fn is_missing(&self, path: &Path) -> bool {
        let _ = path;
        false
    }

    /// Where the store is now.
    fn location(&self) -> StoreLocation {
        StoreLocation::AsFound
    }

    /// The length of a pack should be a multiple of this.
    fn pack_unit(&self) -> u64 {
        1
    }

    /// The path by which the store was opened, for messages.
    fn root(&self) -> &Path;

    /// A path that leads to the store even after [`Backing::root`] no longer does, for engines that
    /// do their own I/O in this process.
    fn anchor(&self) -> &Path {
        self.root()
    }
}

/// An open file of a store.
pub trait BackingFile: Send + Sync + std::fmt::Debug {
    /// Reads at an offset; fewer bytes than asked for only at the end of the file.
    ///
    /// # Errors
    /// What the operating system says.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `buf` at an offset.
    ///
    /// # Errors
    /// What the operating system says; some of the bytes may have been written then.
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;

    /// Makes contents and length durable (`fdatasync`). After an error nothing written since the
    /// last success is certain to be durable, even if a later call succeeds.
    ///
    /// # Errors
    /// What the operating system says.
    fn sync_data(&self) -> io::Result<()>;

    /// Asks the device to start writing a range, so that the next [`BackingFile::sync_data`] has
    /// less to do. A hint: guarantees nothing.
    fn write_out(&self, offset: u64, len: u64) {
        let _ = (offset, len);
    }

    /// Asks the device to start reading a range that will be read soon. A hint: guarantees nothing.
    fn will_need(&self, offset: u64, len: u64) {
        let _ = (offset, len);
    }

    /// Makes contents and length durable for the last time: no write follows.
    ///
    /// # Errors
    /// As [`BackingFile::sync_data`].
    fn seal(&self) -> io::Result<()> {
        self.sync_data()
    }

    /// Length in bytes.
    ///
    /// # Errors
    /// What the operating system says.
    fn len(&self) -> io::Result<u64>;

    /// Whether the file has no bytes.
    ///
    /// # Errors
    /// What the operating system says.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Truncates or extends the file.
    ///
    /// # Errors
    /// What the operating system says.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Reserves space up to `len` without changing the length, so that writes below it do not run
    /// out of space. Returns false where the file system cannot reserve.
    ///
    /// # Errors
    /// `ENOSPC` and the like.
    fn reserve(&self, len: u64) -> io::Result<bool>;

    /// Reads exactly `buf.len()` bytes.
    ///
    /// # Errors
    /// `UnexpectedEof` when the file ends before, else what the operating system says.
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        if self.read_at(buf, offset)? == buf.len() {
            Ok(())
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }
}
