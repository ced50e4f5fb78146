//! Data commits: extents that become part of a file, and folds.

use std::collections::BTreeMap;

use super::{Namespace, damaged};
use crate::extent::Extent;
use crate::kv::Version;
use crate::schema::{CommitRecord, Delta, Inode, MapRoot, Phase, Time, keys};
use crate::{Error, Kv};

/// How a commit changes the extents of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapChange {
    /// Not at all.
    Keep,
    /// Lays these over the file as a commit record.
    Append(Vec<Extent>),
    /// Replaces the folded map and all commit records.
    Fold(MapRoot),
}

/// One atomic change of a file's contents.
#[derive(Clone, Debug)]
pub struct DataCommit {
    /// Its extents.
    pub map: MapChange,
    /// Its size.
    pub size: Option<u64>,
    /// Its times of change (contents, inode).
    pub times: Option<(Time, Time)>,
    /// How far it has settled from now on.
    pub phase: Option<Phase>,
    /// Chunks are aligned to 2^this bytes from now on.
    pub chunk_shift: Option<u8>,
    /// Change of the bytes it occupies.
    pub stored: i64,
    /// Change of the live bytes of packs.
    pub packs: BTreeMap<u64, i64>,
}

impl Default for DataCommit {
    fn default() -> Self {
        Self {
            map: MapChange::Keep,
            size: None,
            times: None,
            phase: None,
            chunk_shift: None,
            stored: 0,
            packs: BTreeMap::new(),
        }
    }
}

impl Namespace {
    /// Commits a change of contents.
    ///
    /// # Errors
    /// `ENOENT` when the inode has been purged, or when the engine fails.
    pub fn commit_data(&self, ino: u64, commit: &DataCommit) -> Result<(Inode, Version), Error> {
        self.transact(|change| {
            let mut inode = change.inode(ino)?;
            match &commit.map {
                MapChange::Keep => {}
                MapChange::Append(extents) => {
                    let record = CommitRecord {
                        extents: extents.clone(),
                    };
                    let seq = change.next_seq();
                    let key = keys::commit(ino, change.session(), seq);
                    change
                        .txn()
                        .compare(crate::kv::Compare::Absent(key.clone()));
                    change.txn().put(key, record.encode());
                }
                MapChange::Fold(root) => {
                    let (start, end) = keys::commits(ino);
                    if self.kv().range(&start, &end, 1)?.pop().is_some() {
                        change.txn().delete_range(start, end);
                    }
                    inode.map = root.clone();
                }
            }
            let before = inode.size;
            inode.size = commit.size.unwrap_or(inode.size);
            inode.stored = inode.stored.saturating_add_signed(commit.stored);
            if let Some((mtime, ctime)) = commit.times {
                inode.mtime = mtime;
                // A name or an attribute may have changed since.
                inode.ctime = inode.ctime.max(ctime);
            }
            if inode.nlink > 0 {
                let delta = Delta {
                    raw: inode.size as i64 - before as i64,
                    stored: commit.stored,
                    ..Delta::default()
                };
                change.account(inode.parent, &delta)?;
            }
            if let Some(phase) = commit.phase.filter(|&phase| phase != inode.phase) {
                match inode.phase {
                    Phase::Loose => change.txn().delete(keys::loose(ino)),
                    Phase::Hard(_) => change.txn().delete(keys::hard(ino)),
                    Phase::Fresh | Phase::Settled => change.txn(),
                };
                match phase {
                    Phase::Loose => change.txn().put(keys::loose(ino), Vec::new()),
                    Phase::Hard(_) => change.txn().put(keys::hard(ino), Vec::new()),
                    Phase::Fresh | Phase::Settled => change.txn(),
                };
                inode.phase = phase;
            }
            inode.chunk_shift = commit.chunk_shift.unwrap_or(inode.chunk_shift);
            for (&pack, &delta) in &commit.packs {
                change.use_pack(pack, delta);
            }
            change.put_inode(inode.clone());
            Ok(inode)
        })
    }

    /// Commit records of a file that are not folded yet, in the order of their commits.
    ///
    /// # Errors
    /// When the engine fails or a record is damaged.
    pub fn commit_records(&self, ino: u64) -> Result<Vec<CommitRecord>, Error> {
        commit_records(&**self.kv(), ino)
    }
}

/// Commit records of a file that are not folded yet, in the order of their commits.
///
/// # Errors
/// When the engine fails or a record is damaged.
pub fn commit_records(kv: &dyn Kv, ino: u64) -> Result<Vec<CommitRecord>, Error> {
    let (start, end) = keys::commits(ino);
    let mut found = kv.range(&start, &end, usize::MAX)?;
    found.sort_by_key(|(_, value)| value.version);
    found
        .iter()
        .map(|(key, value)| CommitRecord::decode(&value.value).ok_or_else(|| damaged(key)))
        .collect()
}
