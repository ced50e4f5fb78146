//! The space of files and directories, including data that is not stored yet.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use shale_index::extent::Place;
use shale_index::schema::{Inode, Rollup};
use shale_index::{Ino, Namespace, ROOT};

use super::locked::LockedFile;
use super::table::FileTable;
use crate::Error;
use crate::primitives::Mutex;

/// The sums of fewer files are computed each time, so that a total is as new as its parts.
const MANY: usize = 1000;
/// Those of many files are reused for this many times the time it took to compute them.
const REUSED: u32 = 8;
/// Times that totals are read again because of a commit in between.
const TRIES: usize = 8;

/// Limit of the directories above a file: during renames they may seem to form a ring.
const DEPTH: usize = 4096;

/// The space of a file, or of a directory with everything below it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes as programs see them.
    pub raw: u64,
    /// Bytes in the store.
    pub stored: u64,
    /// Bytes of `raw` that are stored.
    pub stored_raw: u64,
    /// Bytes in memory that are not stored yet; they may replace some that are.
    pub unwritten: u64,
    /// Files.
    pub files: u64,
    /// Directories.
    pub dirs: u64,
    /// Whether any of it is not stored yet.
    pub writing: bool,
}

/// The state of files beyond the index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Pending {
    files: u64,
    /// How much larger they are than in the index.
    grown: i64,
    /// Bytes that the index counts and that are not stored, below bytes that are.
    missing: u64,
    unwritten: u64,
}

impl Usage {
    /// Of an inode, or of everything below it, if everything is stored.
    pub(crate) fn stored(namespace: &Namespace, inode: &Inode) -> Result<Self, Error> {
        let known = if inode.is_dir() {
            namespace.rollup(inode.ino)?
        } else {
            one(inode)
        };
        Ok(Pending::default().on(known))
    }
}

impl Pending {
    fn add(&mut self, other: &Self) {
        self.files += other.files;
        self.grown += other.grown;
        self.missing += other.missing;
        self.unwritten += other.unwritten;
    }

    fn on(&self, known: Rollup) -> Usage {
        Usage {
            raw: known.raw.saturating_add_signed(self.grown),
            stored: known.stored,
            stored_raw: known.raw.saturating_sub(self.missing),
            unwritten: self.unwritten,
            files: known.files,
            dirs: known.dirs,
            writing: self.files > 0,
        }
    }
}

/// The sums of all directories, if it took long to compute them.
#[derive(Debug, Default)]
pub(super) struct PendingSums(Mutex<Option<Made>>);

#[derive(Debug)]
struct Made {
    at: Instant,
    took: Duration,
    files: usize,
    by_directory: Arc<HashMap<Ino, Pending>>,
}

impl FileTable {
    /// The space of a file, including unwritten data.
    pub(crate) fn usage(&self, ino: Ino) -> Result<Usage, Error> {
        let namespace = &self.volume.namespace;
        // Before the index is read: otherwise the file could be committed and forgotten in between.
        let Some(file) = self.in_use(ino) else {
            return Usage::stored(namespace, &namespace.inode(ino)?);
        };
        let mut locked = file.lock(&self.volume);
        let inode = namespace.inode(ino)?;
        Ok(pending(&mut locked).on(one(&inode)))
    }

    /// The space of everything below a directory.
    pub(crate) fn usage_below(&self, dir: Ino) -> Result<Usage, Error> {
        let namespace = &self.volume.namespace;
        let mut known = namespace.rollup(dir)?;
        for _ in 0..TRIES {
            let sums = self.pending_by_directory();
            let again = namespace.rollup(dir)?;
            if again == known {
                let pending = sums.get(&dir).copied().unwrap_or_default();
                return Ok(pending.on(known));
            }
            known = again;
        }
        // Data committed in between counts twice rather than not at all: a total is not less than
        // its parts.
        let sums = self.pending_by_directory();
        let known = namespace.rollup(dir)?;
        Ok(sums.get(&dir).copied().unwrap_or_default().on(known))
    }

    /// The pending data below each directory that has some.
    fn pending_by_directory(&self) -> Arc<HashMap<Ino, Pending>> {
        let namespace = &self.volume.namespace;
        let mut sums = self.pending.0.lock();
        if let Some(made) = &*sums
            && made.files >= MANY
            && made.at.elapsed() < made.took * REUSED
        {
            return Arc::clone(&made.by_directory);
        }
        let begun = Instant::now();
        let mut by_directory: HashMap<Ino, Pending> = HashMap::new();
        let mut parents: HashMap<Ino, Option<Ino>> = HashMap::new();
        let mut parent_of = |ino: Ino| {
            let look = || Some(namespace.inode(ino).ok()?.parent);
            *parents.entry(ino).or_insert_with(look)
        };
        let files = self.dirty();
        for file in &files {
            let pending = pending(&mut file.lock(&self.volume));
            // Some may be committed and not yet given back; one without a name is in no directory.
            let named = namespace.inode(file.ino);
            let Some(inode) = named.ok().filter(|inode| inode.nlink > 0) else {
                continue;
            };
            if pending.files == 0 {
                continue;
            }
            let mut at = Some(inode.parent);
            for _ in 0..DEPTH {
                let Some(dir) = at else { break };
                by_directory.entry(dir).or_default().add(&pending);
                at = if dir == ROOT { None } else { parent_of(dir) };
            }
        }
        let by_directory = Arc::new(by_directory);
        *sums = Some(Made {
            at: Instant::now(),
            took: begun.elapsed(),
            files: files.len(),
            by_directory: Arc::clone(&by_directory),
        });
        by_directory
    }
}

fn one(inode: &Inode) -> Rollup {
    Rollup {
        raw: if inode.is_file() { inode.size } else { 0 },
        stored: inode.stored,
        files: 1,
        dirs: 0,
    }
}

fn pending(file: &mut LockedFile<'_>) -> Pending {
    if file.is_clean() {
        return Pending::default();
    }
    Pending {
        files: 1,
        grown: file.size as i64 - file.committed_size as i64,
        // The reader of the file gets the error of an unreadable map.
        missing: missing(file).unwrap_or(0),
        unwritten: file.unwritten(),
    }
}

/// Bytes in memory below the size that the index has, where nothing is stored.
fn missing(file: &mut LockedFile<'_>) -> Result<u64, Error> {
    let mut ranges: Vec<Range<u64>> = Vec::new();
    for chunk in file.chunks.values() {
        for (start, piece) in chunk.pieces() {
            let end = (start + piece.len() as u64).min(file.committed_size);
            if start < end {
                ranges.push(start..end);
            }
        }
    }
    ranges.sort_unstable_by_key(|range| (range.start, range.end));
    let (mut missing, mut at) = (0, 0);
    for Range { start, end } in ranges {
        // Newer bytes may lie over older ones.
        let start = start.max(at);
        if start < end {
            let extents = file.extents(start..end)?;
            let stored = extents.iter().filter(|extent| extent.place != Place::Hole);
            let stored: u64 = stored.map(|extent| extent.len).sum();
            missing += (end - start).saturating_sub(stored);
            at = end;
        }
    }
    Ok(missing)
}
