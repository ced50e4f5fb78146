//! The one place that calls `shale_fs` and `shale_store`.

#[allow(dead_code, unreachable_pub)]
#[path = "../../fs/src/options.rs"]
pub(crate) mod options;

use std::path::Path;

pub(crate) use options::{Defaults, MountOptions, Requested, Unknown};

use crate::failure::{Failure, fsck_exit, mount_exit};

/// Names of files at the top of a store.
pub(crate) mod store_files {
    /// What makes a directory a store.
    pub(crate) const SUPERBLOCK: &str = "superblock";
    /// Locked by the daemon as long as it lives.
    pub(crate) const LOCK: &str = "lock";
    /// Where warnings go unless `--log` says otherwise.
    pub(crate) const LOG: &str = "shale.log";
}

/// A mount that answers.
#[allow(dead_code)]
pub(crate) struct Mounted;

/// Ends a mount from another thread.
pub(crate) struct Unmounter;

/// Mounts; returns once the mount answers.
pub(crate) fn mount(options: &MountOptions) -> Result<Mounted, Failure> {
    let _ = options;
    Err(Failure::new(
        mount_exit::FAILED,
        "this build has no file system yet",
    ))
}

impl Mounted {
    /// Blocks until unmounted and durable.
    pub(crate) fn wait(self) -> Result<(), Failure> {
        Ok(())
    }

    pub(crate) fn unmounter(&self) -> Unmounter {
        Unmounter
    }
}

impl Unmounter {
    pub(crate) fn unmount(&self) -> Result<(), Failure> {
        Ok(())
    }
}

/// Something that fsck found.
#[derive(serde::Serialize)]
pub(crate) struct Problem {
    pub(crate) what: String,
    pub(crate) file: Option<String>,
    pub(crate) offset: Option<u64>,
    pub(crate) repaired: bool,
}

/// What fsck found.
#[derive(serde::Serialize)]
pub(crate) struct FsckReport {
    pub(crate) problems: Vec<Problem>,
}

/// Checks a store that is not mounted.
pub(crate) fn fsck(
    store: &Path,
    rebuild: bool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<FsckReport, Failure> {
    let _ = (store, rebuild, progress);
    Err(Failure::new(
        fsck_exit::OPERATIONAL,
        "this build has no store yet",
    ))
}
