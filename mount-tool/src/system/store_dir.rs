//! The directory of a store, seen from outside: the names of its files, and whether it is one.

use std::path::Path;

/// Locked by the daemon while it lives.
pub(crate) use shale_store::LOCK_FILE as LOCK;
/// The file that makes a directory a store.
pub(crate) use shale_store::SUPERBLOCK_FILE as SUPERBLOCK;

/// Where a daemon logs unless `--log` names another file.
pub(crate) const LOG: &str = "shale.log";

/// Whether a directory has a superblock. Inside a mount this is a copy of a store, and an ordinary
/// directory.
pub(crate) fn is_store(path: &Path) -> bool {
    path.join(SUPERBLOCK).symlink_metadata().is_ok()
}
