//! The small trait through which every byte of a store is read and written.
//!
//! Packs, the index journal and the superblock never touch the operating system directly: they
//! go through [`Backing`] and [`BackingFile`]. That keeps the durability rules in one place and
//! lets tests replace the disk by one that loses, tears or refuses writes.
//!
//! Paths are relative to the root of the store. Nothing is durable until the matching sync call
//! has returned: [`BackingFile::sync_data`] for contents and length, [`Backing::sync_dir`] for
//! names.

mod choice;
pub mod failpoint;
#[cfg(any(test, feature = "faults"))]
pub mod faults;
mod interrupted;
mod lustre;
mod mapped;
mod memory;
mod persist;
mod pmem;
mod posix;
mod priority;
mod read_only;
#[cfg(any(test, feature = "faults"))]
pub mod spoil;
#[cfg(any(test, feature = "faults"))]
pub mod still;
mod writeout;

pub use choice::{Choice, Device, Facts, choose, open_device};
pub use lustre::{StripeCount, Striping};
pub use memory::give_back_memory;
pub use pmem::PROBE;
pub use posix::PosixBacking;
pub use priority::{Priority, set_priority};
pub use read_only::ReadOnly;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One entry of a backing directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
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
    /// Free bytes, including what is reserved for root.
    pub free: u64,
    /// Free bytes that this process may use.
    pub available: u64,
    /// Inodes in all.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
}

/// Where the directory of a store is, by names of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Where it was found.
    AsFound,
    /// It was moved there.
    At(PathBuf),
    /// No name leads there: its file system was unmounted or covered by another, or it was
    /// removed.
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
    /// The same for a file that grows by large pieces until it is sealed
    /// ([`BackingFile::seal`]), and is then only read.
    CreatePack,
}

/// A directory tree that holds a store.
pub trait Backing: Send + Sync + std::fmt::Debug {
    /// Opens or creates a file.
    ///
    /// # Errors
    /// What the operating system says.
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn BackingFile>>;

    /// Renames a file over whatever has the new name.
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
    /// What the operating system says, also of one with something in it.
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
    fn list(&self, path: &Path) -> io::Result<Vec<Entry>>;

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

    /// Whether [`Backing::space`] takes for free what was written lately, until
    /// [`Backing::count`].
    fn counts_late(&self) -> bool {
        false
    }

    /// Has everything counted that was written, which may take as long as a sync of the device.
    ///
    /// # Errors
    /// What the operating system says.
    fn count(&self) -> io::Result<()> {
        Ok(())
    }

    /// Whether something that was there is gone. False where that cannot be said.
    fn has_lost(&self, path: &Path) -> bool {
        let _ = path;
        false
    }

    /// Where the store is now.
    fn place(&self) -> Place {
        Place::AsFound
    }

    /// Packs should be a multiple of so many bytes long.
    fn pack_unit(&self) -> u64 {
        1
    }

    /// Where the store was found in the host's name space, for messages.
    fn root(&self) -> &Path;

    /// A path that leads to the store whatever has become of the one it was found by, for engines
    /// that do their own I/O in this process.
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
    /// last success can be relied upon, even if a later call succeeds.
    ///
    /// # Errors
    /// What the operating system says.
    fn sync_data(&self) -> io::Result<()>;

    /// Asks the device to begin with what was written to a range, so that the next
    /// [`BackingFile::sync_data`] finds less to do. Promises nothing.
    fn write_out(&self, offset: u64, len: u64) {
        let _ = (offset, len);
    }

    /// Asks the device to begin reading a range that will be read soon. Promises nothing.
    fn will_need(&self, offset: u64, len: u64) {
        let _ = (offset, len);
    }

    /// Makes contents and length durable for the last time: nothing is written any more.
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

    /// Cuts or extends the file.
    ///
    /// # Errors
    /// What the operating system says.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Reserves space up to `len` without changing the length, so that writes below it do not
    /// run out of space. Returns whether it did: a file system that cannot is not an error.
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
