//! A mounted file system, free of FUSE.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;
use shale_index::Ino;
use shale_index::schema::Inode;
use shale_store::Store;

use crate::Error;
use crate::counters::Counters;
use crate::layout::KnownLayouts;
use crate::options::Synchronous;
use crate::policy::{MountDefaults, Policies};
use crate::reports::VariableReports;
use crate::settle_control::SettleControl;

/// The file system of one store.
#[derive(Debug)]
pub struct Fs {
    pub(crate) store: Store,
    /// Inodes that lost their last name while the kernel may still refer to them.
    // single-node: no other kernel refers to them.
    orphans: Mutex<HashSet<Ino>>,
    /// Open handles that may write, by inode.
    // single-node: a file that is not here has no writer.
    writers: Mutex<HashMap<Ino, usize>>,
    pub(crate) settling: SettleControl,
    pub(crate) layouts: KnownLayouts,
    pub(crate) counters: Counters,
    pub(crate) variable_reports: VariableReports,
    pub(crate) policies: Policies,
    pub(crate) synchronous: Synchronous,
    pub(crate) location: MountLocation,
}

/// The store and the mount point, for display.
#[derive(Clone, Debug, Default)]
pub struct MountLocation {
    /// Directory of the store.
    pub store: String,
    /// Where it is mounted.
    pub mountpoint: String,
}

/// Who makes a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Caller {
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Process, 0 when unknown.
    pub pid: u32,
    /// Permissions that a new file does not get, unless its directory has a default list.
    pub umask: u32,
}

impl Fs {
    /// A file system over a store; `defaults` apply where no policy is set.
    #[must_use]
    pub fn new(store: Store, defaults: MountDefaults) -> Self {
        Self {
            store,
            policies: Policies::new(defaults),
            orphans: Mutex::default(),
            writers: Mutex::default(),
            settling: SettleControl::default(),
            layouts: KnownLayouts::default(),
            counters: Counters::default(),
            variable_reports: VariableReports::default(),
            synchronous: Synchronous::default(),
            location: MountLocation::default(),
        }
    }

    /// The same file system, where changes of this kind are durable when they return.
    #[must_use]
    pub fn with_durable(self, synchronous: Synchronous) -> Self {
        Self {
            synchronous,
            ..self
        }
    }

    /// The same file system, with its mount point.
    #[must_use]
    pub fn with_location(self, location: MountLocation) -> Self {
        Self { location, ..self }
    }

    /// Notes that a file was opened for writing.
    pub(crate) fn begin_writer(&self, ino: Ino) {
        *self.writers.lock().entry(ino).or_default() += 1;
    }

    /// Notes that a handle that may write was closed.
    pub(crate) fn end_writer(&self, ino: Ino) {
        let mut writers = self.writers.lock();
        if let Some(count) = writers.get_mut(&ino) {
            *count -= 1;
            if *count == 0 {
                writers.remove(&ino);
                self.store.forget_asked(ino);
                self.layouts.forget(ino);
            }
        }
    }

    /// Files that are open for writing.
    pub(crate) fn written_files(&self) -> Vec<Ino> {
        self.writers.lock().keys().copied().collect()
    }

    /// Whether a file is open for writing.
    pub(crate) fn has_writers(&self, ino: Ino) -> bool {
        self.writers.lock().contains_key(&ino)
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// An inode with everything that has been written to it.
    pub(crate) fn inode(&self, ino: Ino) -> Result<Inode, Error> {
        Ok(self.store.stat(ino)?.inode)
    }

    /// Where an inode is in the mount, for logs.
    pub(crate) fn path(&self, ino: Ino) -> String {
        self.store.path_of(ino)
    }

    /// Remembers an inode without a name until the kernel forgets it.
    pub(crate) fn orphaned(&self, ino: Ino) {
        self.orphans.lock().insert(ino);
    }

    /// The kernel no longer refers to an inode.
    pub fn forget(&self, ino: Ino) {
        if self.orphans.lock().remove(&ino) {
            self.store.release_orphan(ino);
        }
    }
}
