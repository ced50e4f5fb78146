//! Creates an index from a list of pairs, replacing the existing one.

use std::path::{Path, PathBuf};

use shale_backing::Backing;

use super::Embedded;
use super::memtable::Slot;
use super::paths::{self, io_error};
use super::snapshot::SnapshotWriter;
use crate::Error;
use crate::kv::{Version, Versioned};

/// Where it is created. A process that opens the store meanwhile finds the old index, or none, but
/// never a part of the new one.
const NEW: &str = "index.new";

impl Embedded {
    /// Creates an index from a list of pairs; its first commit will have the number `next`. The old
    /// index is kept as `index.old-N`. After a failure or a crash there is the old index, the new
    /// one, or none, and the import can be repeated.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn import(
        backing: &dyn Backing,
        pairs: impl IntoIterator<Item = (Vec<u8>, Versioned)>,
        next: Version,
    ) -> Result<(), Error> {
        let (new, dir, root) = (Path::new(NEW), Path::new(paths::DIR), Path::new(""));
        if backing.list(new).is_ok() {
            backing
                .remove_dir_all(new)
                .map_err(io_error("remove", new))?;
        }
        backing
            .create_dir_all(new)
            .map_err(io_error("create", new))?;
        let last = next.saturating_sub(1);
        let mut writer = SnapshotWriter::create(backing, new, last)?;
        for (key, pair) in pairs {
            let slot = Slot {
                version: pair.version,
                created: pair.created,
                value: Some(pair.value),
                leased: false,
            };
            writer.push(&key, &slot)?;
        }
        writer.finish(backing, last)?;
        let sync = || backing.sync_dir(root).map_err(io_error("sync", root));
        sync()?;
        if backing.list(dir).is_ok() {
            let aside = aside(backing);
            backing
                .rename(dir, &aside)
                .map_err(io_error("rename", dir))?;
            sync()?;
        }
        backing.rename(new, dir).map_err(io_error("rename", new))?;
        sync()
    }
}

/// An unused name for the old index.
fn aside(backing: &dyn Backing) -> PathBuf {
    let mut number = 1;
    loop {
        let path = PathBuf::from(format!("{}.old-{number}", paths::DIR));
        if backing.list(&path).is_err() {
            return path;
        }
        number += 1;
    }
}
