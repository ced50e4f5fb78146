//! The one place that calls `shale_fs` and `shale_store`.

use std::path::Path;

pub(crate) use shale_fs::Unmounter;
pub(crate) use shale_fs::options::{Defaults, MountOptions, Requested, Unknown};
pub(crate) use shale_store::fsck::{FsckOptions, FsckReport};

use crate::failure::{Failure, fsck_exit, mount_exit};

/// Names of files at the top of a store.
pub(crate) mod store_files {
    /// Locked by the daemon as long as it lives.
    pub(crate) use shale_store::lock::FILE as LOCK;
    /// What makes a directory a store.
    pub(crate) use shale_store::superblock::FILE as SUPERBLOCK;
    /// Where warnings go unless `--log` says otherwise.
    pub(crate) const LOG: &str = "shale.log";
}

/// Whether a directory looks like a store; one in a mount is a copy, and an ordinary directory.
pub(crate) fn is_store(path: &Path) -> bool {
    path.join(store_files::SUPERBLOCK)
        .symlink_metadata()
        .is_ok()
}

/// Refuses a store that this program cannot read, before anything in it is touched.
pub(crate) fn check_superblock(store: &Path) -> Result<(), Failure> {
    shale_store::superblock::check(store)
        .map_err(|error| Failure::new(mount_exit::FAILED, error.to_string()))
}

/// A mount that answers.
pub(crate) struct Mounted(shale_fs::Mounted);

fn failed(error: shale_fs::Error) -> Failure {
    Failure::new(mount_exit::FAILED, error.to_string())
}

/// Mounts; returns once the mount answers.
pub(crate) fn mount(options: &MountOptions) -> Result<Mounted, Failure> {
    shale_fs::mount(options).map(Mounted).map_err(failed)
}

impl Mounted {
    /// Blocks until unmounted, calls `unmounted`, and blocks until durable.
    pub(crate) fn wait(self, unmounted: impl FnOnce()) -> Result<(), Failure> {
        self.0.wait(unmounted).map_err(failed)
    }

    pub(crate) fn unmounter(&self) -> Unmounter {
        self.0.unmounter()
    }
}

/// Checks a store that is not mounted.
pub(crate) fn fsck(
    store: &Path,
    options: &FsckOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<FsckReport, Failure> {
    shale_store::fsck::fsck(store, options, progress)
        .map_err(|error| Failure::new(fsck_exit::OPERATIONAL, error.to_string()))
}
