//! A mounted file system, free of FUSE.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use shale_store::index::Namespace;
use shale_store::index::schema::Time;
use shale_store::{File, Seen, Store};

use crate::counters::Counters;
use crate::options::Synchronous;
use crate::policy::{Defaults, Followed, Policies};
use crate::understanding::Understanding;
use crate::variables::Surveys;
use crate::{Error, settler};

/// The file system of one store.
#[derive(Debug)]
pub struct Fs {
    pub(crate) store: Store,
    /// Inodes that lost their last name while the kernel may still refer to them.
    orphans: Mutex<HashSet<u64>>,
    /// Open handles that may write, by inode.
    writers: Mutex<HashMap<u64, usize>>,
    pub(crate) settling: settler::Control,
    pub(crate) understanding: Understanding,
    pub(crate) counters: Counters,
    pub(crate) surveys: Surveys,
    pub(crate) policies: Policies,
    synchronous: Synchronous,
    pub(crate) place: Place,
}

/// What is mounted where, as it is shown.
#[derive(Clone, Debug, Default)]
pub struct Place {
    /// Directory of the store.
    pub store: String,
    /// Where it is mounted.
    pub mountpoint: String,
}

/// Who asks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Caller {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Process, 0 when unknown.
    pub pid: u32,
}

/// Attributes as `stat(2)` shows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Inode number.
    pub ino: u64,
    /// Type and permissions.
    pub mode: u32,
    /// Number of names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number.
    pub rdev: u32,
    /// Logical size.
    pub size: u64,
    /// Stored bytes in units of 512.
    pub blocks: u64,
    /// Preferred size of requests.
    pub blksize: u32,
    /// Last access.
    pub atime: Time,
    /// Last change of contents.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
    /// Creation.
    pub btime: Time,
}

/// An open regular file.
#[derive(Debug)]
pub struct Handle {
    pub(crate) file: Arc<File>,
    /// The last failure of writing behind that this handle has reported.
    seen: AtomicU64,
    /// It may write.
    pub(crate) writes: bool,
    pub(crate) policy: Followed,
}

impl Handle {
    pub(crate) fn new(file: Arc<File>, writes: bool) -> Self {
        let seen = AtomicU64::new(file.failure().seq);
        Self {
            file,
            seen,
            writes,
            policy: Followed::default(),
        }
    }

    pub(crate) fn ino(&self) -> u64 {
        self.file.ino()
    }

    /// Reports a failure of writing behind, each one once.
    pub(crate) fn report(&self) -> Result<(), Error> {
        let failure = self.file.failure();
        if self.seen.swap(failure.seq, Ordering::SeqCst) < failure.seq {
            return Err(Error::Refused(failure.errno));
        }
        Ok(())
    }
}

impl Fs {
    /// A file system over a store; `defaults` hold where no policy is set.
    #[must_use]
    pub fn new(store: Store, defaults: Defaults) -> Self {
        Self {
            store,
            policies: Policies::new(defaults),
            orphans: Mutex::default(),
            writers: Mutex::default(),
            settling: settler::Control::default(),
            understanding: Understanding::default(),
            counters: Counters::default(),
            surveys: Surveys::default(),
            synchronous: Synchronous::default(),
            place: Place::default(),
        }
    }

    /// The same file system, in which so much is durable when it returns.
    #[must_use]
    pub fn with_durable(self, synchronous: Synchronous) -> Self {
        Self {
            synchronous,
            ..self
        }
    }

    /// The same file system, which knows where it is.
    #[must_use]
    pub fn with_place(self, place: Place) -> Self {
        Self { place, ..self }
    }

    /// Whether a change of this kind has to be durable when it returns.
    pub(crate) fn is_synchronous(&self, change: Synchronous) -> bool {
        self.synchronous >= change
    }

    /// Names have changed.
    pub(crate) fn names_changed(&self) -> Result<(), Error> {
        self.changed(Synchronous::Names)
    }

    /// Attributes have changed.
    pub(crate) fn attributes_changed(&self) -> Result<(), Error> {
        self.changed(Synchronous::Everything)
    }

    fn changed(&self, what: Synchronous) -> Result<(), Error> {
        if self.is_synchronous(what) {
            self.store.sync_metadata()?;
        }
        Ok(())
    }

    /// Notes that a file was opened for writing.
    pub(crate) fn begin_writer(&self, ino: u64) {
        *self.writers.lock().entry(ino).or_default() += 1;
    }

    /// Notes that a handle that may write has gone.
    pub(crate) fn end_writer(&self, ino: u64) {
        let mut writers = self.writers.lock();
        if let Some(count) = writers.get_mut(&ino) {
            *count -= 1;
            if *count == 0 {
                writers.remove(&ino);
                self.store.forget_asked(ino);
                self.end_following(ino);
            }
        }
    }

    /// Files that are open for writing.
    pub(crate) fn written_files(&self) -> Vec<u64> {
        self.writers.lock().keys().copied().collect()
    }

    /// Whether a file is open for writing.
    pub(crate) fn has_writers(&self, ino: u64) -> bool {
        self.writers.lock().contains_key(&ino)
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn namespace(&self) -> &Namespace {
        self.store.namespace()
    }

    pub(crate) fn attr(&self, seen: impl Into<Seen>) -> Attr {
        let Seen { inode, unwritten } = seen.into();
        Attr {
            ino: inode.ino,
            mode: inode.mode,
            nlink: inode.nlink,
            uid: inode.uid,
            gid: inode.gid,
            rdev: inode.rdev,
            size: inode.size,
            blocks: (inode.stored + unwritten).div_ceil(512),
            blksize: if inode.is_file() {
                1 << inode.chunk_shift
            } else {
                4096
            },
            atime: inode.atime,
            mtime: inode.mtime,
            ctime: inode.ctime,
            btime: inode.btime,
        }
    }

    /// Remembers an inode without a name until the kernel lets go of it.
    pub(crate) fn orphaned(&self, ino: u64) {
        self.orphans.lock().insert(ino);
    }

    /// The kernel does not refer to an inode any more.
    pub fn forget(&self, ino: u64) {
        if self.orphans.lock().remove(&ino) {
            self.store.release_orphan(ino);
        }
    }
}
