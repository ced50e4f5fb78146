//! Checking a store that is not in use, and rebuilding its index from its packs.

mod check;
mod pairs;
mod rebuild;
mod repair;
mod salvage;
mod tally;

use std::path::Path;
use std::sync::Arc;

use serde::Serialize;
use shale_backing::{Backing, PosixBacking, ReadOnly};

use crate::Error;
use crate::disk::{SharedLock, StoreLock, Superblock};

/// What to do.
#[derive(Clone, Copy, Debug, Default)]
pub struct FsckOptions {
    /// Rewrite parts that can be derived from the rest without loss: directories of packs, the
    /// catalog.
    pub repair: bool,
    /// Rebuild the index from the packs; repairs the rest as well.
    pub rebuild: bool,
}

/// A problem in a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// What it is.
    pub what: String,
    /// The file concerned, as a path inside the file system.
    pub file: Option<String>,
    /// Where in the file.
    pub offset: Option<u64>,
    /// Whether it has been repaired.
    pub repaired: bool,
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FsckReport {
    /// All problems.
    pub problems: Vec<Problem>,
    /// Inodes that are not directories.
    pub files: u64,
    /// Directories.
    pub dirs: u64,
    /// Pack files.
    pub packs: u64,
    /// Frames that were read and decoded.
    pub frames: u64,
    /// Stored bytes of these frames.
    pub frame_bytes: u64,
    /// Bytes in packs that nothing refers to; gc frees them while the store is mounted.
    pub garbage_bytes: u64,
}

impl FsckReport {
    fn add(&mut self, what: impl Into<String>) {
        self.problems.push(Problem {
            what: what.into(),
            file: None,
            offset: None,
            repaired: false,
        });
    }

    fn repaired(&mut self, what: impl Into<String>) {
        self.harmless(what, true);
    }

    /// Adds a problem through which no data is lost, and which may have been repaired.
    fn harmless(&mut self, what: impl Into<String>, repaired: bool) {
        self.problems.push(Problem {
            what: what.into(),
            file: None,
            offset: None,
            repaired,
        });
    }

    /// Whether the index itself has a problem.
    fn accuses_index(&self) -> bool {
        let left = |problem: &Problem| !problem.repaired && problem.file.is_none();
        self.problems.iter().any(left)
    }
}

/// Checks every reference and every checksum of a store. Writes nothing unless asked to repair;
/// other processes may read the store meanwhile.
///
/// # Errors
/// When the store is in use or cannot be read at all.
pub fn fsck(
    store: &Path,
    options: &FsckOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<FsckReport, Error> {
    let backing: Arc<dyn Backing> = Arc::new(PosixBacking::new(store));
    require_store(&*backing, options)?;
    if options.repair || options.rebuild {
        let _lock = StoreLock::take(store, "being repaired")?;
        return fsck_on(&backing, options, progress);
    }
    let _lock = SharedLock::take(store)?;
    let backing: Arc<dyn Backing> = Arc::new(ReadOnly::new(backing));
    fsck_on(&backing, options, progress)
}

/// Checks a store on a device that no other process uses.
///
/// # Errors
/// When the store cannot be read at all.
pub fn fsck_on(
    backing: &Arc<dyn Backing>,
    options: &FsckOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<FsckReport, Error> {
    require_store(&**backing, options)?;
    let mut report = FsckReport::default();
    if options.rebuild {
        rebuild::rebuild(backing, &mut report)?;
    }
    let repair = options.repair || options.rebuild;
    check::check(backing, repair, &mut report, progress)?;
    Ok(report)
}

/// Checks what an index says of the packs of a store that may be in use.
#[cfg(any(test, feature = "shuttle"))]
pub(crate) fn fsck_index(
    backing: &Arc<dyn Backing>,
    superblock: &Superblock,
    engine: &dyn shale_index::Kv,
) -> Result<FsckReport, Error> {
    let mut report = FsckReport::default();
    check::check_index(backing, superblock, engine, &mut report, &mut |_, _| {})?;
    Ok(report)
}

/// Refuses a directory that is not a store, or has nothing to rebuild one from.
fn require_store(backing: &dyn Backing, options: &FsckOptions) -> Result<(), Error> {
    let store = backing.root();
    if options.rebuild {
        return match Superblock::read(backing) {
            Err(unknown @ Error::UnknownFormat { .. }) => Err(unknown),
            _ => require_remains(store, backing),
        };
    }
    if Superblock::read(backing)?.is_some() {
        return Ok(());
    }
    Err(Error::NotAStore {
        path: store.to_owned(),
        reason: "there is no superblock, so it is not a store".to_owned(),
    })
}

fn require_remains(store: &Path, backing: &dyn Backing) -> Result<(), Error> {
    if backing.list(Path::new(crate::pack::DIR)).is_ok() {
        return Ok(());
    }
    Err(Error::NotAStore {
        path: store.to_owned(),
        reason: format!("it has no directory {} to rebuild from", crate::pack::DIR),
    })
}
