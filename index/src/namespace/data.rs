//! Data commits: extents that become part of a file, and folds.

use std::collections::BTreeMap;

use super::{Namespace, damaged};
use crate::Error;
use crate::extent::{Extent, PackId};
use crate::schema::{CommitRecord, Delta, Ino, Inode, MapRoot, Phase, Time, keys};

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
    pub packs: BTreeMap<PackId, i64>,
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
    /// [`Error::NotFound`] when the inode has been purged, or when the engine fails.
    pub fn commit_data(&self, ino: Ino, commit: &DataCommit) -> Result<Inode, Error> {
        self.transact(|transaction| {
            let mut inode = transaction.inode(ino)?;
            match &commit.map {
                MapChange::Keep => {}
                MapChange::Append(extents) => {
                    let record = CommitRecord {
                        extents: extents.clone(),
                    };
                    let seq = transaction.next_seq();
                    let key = keys::commit(ino, transaction.session(), seq);
                    transaction
                        .txn()
                        .compare(crate::kv::Compare::Absent(key.clone()));
                    transaction.txn().put(key, record.encode());
                }
                MapChange::Fold(root) => {
                    let (start, end) = keys::commits(ino);
                    if self.kv().range(&start, &end, 1)?.pop().is_some() {
                        transaction.txn().delete_range(start, end);
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
                transaction.account(inode.parent, &delta)?;
            }
            if let Some(phase) = commit.phase.filter(|&phase| phase != inode.phase) {
                match inode.phase {
                    Phase::Stored => transaction.txn().delete(keys::stored(ino)),
                    Phase::Incompressible(_) => transaction.txn().delete(keys::incompressible(ino)),
                    Phase::New | Phase::Settled => transaction.txn(),
                };
                match phase {
                    Phase::Stored => transaction.txn().put(keys::stored(ino), Vec::new()),
                    Phase::Incompressible(_) => {
                        transaction.txn().put(keys::incompressible(ino), Vec::new())
                    }
                    Phase::New | Phase::Settled => transaction.txn(),
                };
                inode.phase = phase;
            }
            inode.chunk_shift = commit.chunk_shift.unwrap_or(inode.chunk_shift);
            for (&pack, &delta) in &commit.packs {
                transaction.use_pack(pack, delta);
            }
            transaction.put_inode(inode.clone());
            Ok(inode)
        })
    }

    /// Commit records of a file that are not folded yet, in the order of their commits.
    ///
    /// # Errors
    /// When the engine fails or a record is damaged.
    pub fn commit_records(&self, ino: Ino) -> Result<Vec<CommitRecord>, Error> {
        let (start, end) = keys::commits(ino);
        let mut found = self.kv().range(&start, &end, usize::MAX)?;
        found.sort_by_key(|(_, value)| value.version);
        found
            .iter()
            .map(|(key, value)| CommitRecord::decode(&value.value).ok_or_else(|| damaged(key)))
            .collect()
    }
}
