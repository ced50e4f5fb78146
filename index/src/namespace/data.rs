//! Data commits: extents that become part of a file, and folds.
//!
//! A file of an index that this process has for itself is committed together with its inode. In a
//! shared index a data commit is one private record: it compares nothing but that the inode
//! exists, so writers never conflict. Only a fold changes the inode then. It replaces the map that
//! it was made from, deletes exactly the records that it contains, and refuses when the map is no
//! longer the one it was made from; records that it has not seen are newer and stay above it.

use std::collections::BTreeMap;

use super::{Contents, Namespace};
use crate::Error;
use crate::extent::{Extent, PackId};
use crate::kv::{Compare, Version};
use crate::schema::{
    CommitRecord, Delta, Effect, Ino, Inode, MapRoot, Phase, RecordId, Time, keys,
};

/// How a commit changes the extents of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapChange {
    /// Not at all.
    Keep,
    /// Lays these over the file as a commit record.
    Append(Vec<Extent>),
    /// Replaces the folded map and the commit records in it.
    Fold(Fold),
}

/// A folded map, and what it was made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fold {
    /// The map.
    pub root: MapRoot,
    /// The map before it.
    pub from: MapRoot,
    /// The commit records that it contains.
    pub records: Vec<RecordId>,
    /// The commit that wrote the inode, where other sessions may change it.
    pub inode: Option<Version>,
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
    /// Its phase from now on.
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
    /// Commits a change of contents together with the inode. Returns the id of the commit record,
    /// if the change has one.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the inode has been purged, [`Error::Stale`] when a fold was made
    /// from a map that is no longer the file's, or when the engine fails.
    pub fn commit_data(&self, ino: Ino, commit: &DataCommit) -> Result<Option<RecordId>, Error> {
        self.transact(|transaction| {
            let mut id = None;
            let mut inode = match &commit.map {
                MapChange::Keep => transaction.inode(ino)?,
                MapChange::Append(extents) => {
                    let record = CommitRecord {
                        extents: extents.clone(),
                        effect: Effect::Laid,
                    };
                    let new = *id.insert(transaction.new_record());
                    let key = keys::record(ino, new);
                    let txn = transaction.txn();
                    txn.compare(Compare::Absent(key.clone()));
                    txn.put(key, record.encode());
                    transaction.inode(ino)?
                }
                MapChange::Fold(fold) => {
                    let contents = self.contents(ino)?;
                    if !self.can_fold(fold, &contents) {
                        return Err(Error::Stale);
                    }
                    for &id in &fold.records {
                        transaction.txn().delete(keys::record(ino, id));
                    }
                    transaction.note(contents.inode.clone(), contents.inode_version);
                    let mut inode = contents.inode;
                    inode.map = fold.root.clone();
                    inode
                }
            };
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
            let phase = match commit.phase {
                None if self.shared => self.listed_phase(ino, &commit.map)?,
                phase => phase,
            };
            if let Some(phase) = phase {
                let (ino, txn) = (inode.ino, transaction.txn());
                if self.shared && inode.phase != Phase::Stored && phase != Phase::Stored {
                    // A record may have listed it.
                    txn.delete(keys::stored(ino));
                }
                set_phase(txn, &mut inode, phase);
            }
            inode.chunk_shift = commit.chunk_shift.unwrap_or(inode.chunk_shift);
            for (&pack, &delta) in &commit.packs {
                transaction.use_pack(pack, delta);
            }
            transaction.put_inode(inode);
            Ok(id)
        })
    }

    /// The phase of a file whose records a fold takes: they have listed it if it is to be settled.
    fn listed_phase(&self, ino: Ino, change: &MapChange) -> Result<Option<Phase>, Error> {
        match change {
            MapChange::Fold(fold) if !fold.records.is_empty() => {
                let listed = self.kv.get(&keys::stored(ino))?;
                Ok(listed.map(|_| Phase::Stored))
            }
            _ => Ok(None),
        }
    }

    /// Whether a file is still what a fold was made from. Where this process has the index for
    /// itself, all records must be part of it: it knows of all.
    fn can_fold(&self, fold: &Fold, contents: &Contents) -> bool {
        let there = |id: &RecordId| contents.records.iter().any(|record| record.id == *id);
        contents.inode.map == fold.from
            && fold
                .inode
                .is_none_or(|version| version == contents.inode_version)
            && fold.records.iter().all(there)
            && (self.shared || contents.records.len() == fold.records.len())
    }

    /// Adds a private record to a file of a shared index.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the inode has been purged, or when the engine fails.
    pub fn commit_record(&self, ino: Ino, commit: &RecordCommit<'_>) -> Result<RecordId, Error> {
        let id = self.new_record();
        let mut txn = crate::kv::Txn::new();
        txn.compare(Compare::Exists(self.session_key.clone()));
        txn.compare(Compare::Exists(keys::inode(ino)));
        txn.put(keys::record(ino, id), commit.record.encode());
        if commit.to_settle {
            txn.put(keys::stored(ino), Vec::new());
        }
        for (&pack, &bytes) in commit.packs {
            txn.add(keys::pack(pack), crate::kv::Counter::of(bytes as i64));
        }
        if let Some(why) = self.fence.get() {
            return Err(Error::Fenced(why.clone()));
        }
        match self.kv.commit(&txn)? {
            crate::kv::Outcome::Committed(_) => Ok(id),
            crate::kv::Outcome::Conflict => match self.kv.get(&self.session_key)? {
                Some(_) => Err(Error::NotFound),
                None => Err(Error::SessionEnded("its key is gone".to_owned())),
            },
        }
    }
}

/// A record to be added to a file.
#[derive(Clone, Debug)]
pub struct RecordCommit<'a> {
    /// The record.
    pub record: &'a CommitRecord,
    /// Whether the file is large enough to be settled.
    pub to_settle: bool,
    /// Bytes of the extents in each pack.
    pub packs: &'a BTreeMap<PackId, u64>,
}

/// Changes the phase of a file, and the list it is in.
fn set_phase(txn: &mut crate::kv::Txn, inode: &mut Inode, phase: Phase) {
    let list = |phase: Phase| match phase {
        Phase::Stored => Some(keys::stored(inode.ino)),
        Phase::Incompressible(_) => Some(keys::incompressible(inode.ino)),
        Phase::New | Phase::Settled => None,
    };
    let (before, after) = (list(inode.phase), list(phase));
    if before != after {
        if let Some(key) = before {
            txn.delete(key);
        }
        if let Some(key) = after {
            txn.put(key, Vec::new());
        }
    }
    inode.phase = phase;
}
