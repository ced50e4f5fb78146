//! Orphans: inodes without a name, which are purged when no process uses them any more.
//!
//! In a shared index a session may have a file open that another one removes. Each session looks
//! through the list of orphans from time to time, puts a leased key for those that it has open,
//! and then notes up to which commit it has looked. An orphan is purged when every session that is
//! alive has looked since it became one, and none has it open. That needs no clock, and opening a
//! file costs nothing.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use super::{Contents, Namespace, damaged};
use crate::Error;
use crate::extent::PackId;
use crate::kv::{Compare, Op, Outcome, Txn, Version, Want};
use crate::schema::{Ino, decode_number, encode_number, keys};

/// Files of which one transaction of [`Namespace::note_uses`] tells at most.
const USES_AT_ONCE: usize = 64;

/// An inode without a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// The inode.
    pub ino: Ino,
    /// The commit that made it an orphan.
    pub since: Version,
    /// The session that did.
    pub session: u64,
}

impl Namespace {
    /// Inodes without a name, and the commit after which these are all.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn orphans(&self) -> Result<(Vec<Orphan>, Version), Error> {
        let (start, end) = keys::orphans();
        let limit = usize::MAX;
        let mut snapshot = self.kv.get_many(&[Want::Range { start, end, limit }])?;
        let found = snapshot.found.pop().unwrap_or_default();
        let orphan = |(key, value): (Vec<u8>, crate::kv::Versioned)| {
            Some(Orphan {
                ino: keys::orphan_of(&key)?,
                since: value.created,
                // Format 2 did not note it.
                session: decode_number(&value.value).unwrap_or(0),
            })
        };
        let orphans = found.into_iter().filter_map(orphan).collect();
        Ok((orphans, snapshot.version))
    }

    /// Says which orphans this session has open, and that it has looked through all of them up to
    /// a commit. Only a shared index needs it.
    ///
    /// # Errors
    /// When the engine fails, or the session has ended.
    pub fn note_uses(&self, in_use: &[Ino], looked: Version) -> Result<(), Error> {
        for inos in in_use.chunks(USES_AT_ONCE) {
            let mut txn = Txn::new();
            txn.compare(Compare::Exists(self.session_key.clone()));
            for &ino in inos {
                txn.ops
                    .push(self.leased(keys::in_use(ino, self.session), Vec::new()));
            }
            self.commit_own(&txn)?;
        }
        self.looked.fetch_max(looked, Ordering::Relaxed);
        let mut txn = Txn::new();
        txn.compare(Compare::Exists(self.session_key.clone()));
        txn.ops
            .push(self.leased(self.session_key.clone(), encode_number(looked)));
        self.commit_own(&txn)
    }

    /// Says that this session has an orphan open, if that is still there.
    ///
    /// # Errors
    /// [`Error::NotFound`] when it has been purged, or when the engine fails.
    pub fn note_use(&self, ino: Ino) -> Result<(), Error> {
        let mut txn = Txn::new();
        txn.compare(Compare::Exists(self.session_key.clone()));
        txn.compare(Compare::Exists(keys::inode(ino)));
        txn.ops
            .push(self.leased(keys::in_use(ino, self.session), Vec::new()));
        match self.kv.commit(&txn)? {
            Outcome::Committed(_) => Ok(()),
            Outcome::Conflict => Err(Error::NotFound),
        }
    }

    /// Says that this session has an orphan open no more.
    ///
    /// # Errors
    /// When the engine fails, or the session has ended.
    pub fn end_use(&self, ino: Ino) -> Result<(), Error> {
        let mut txn = Txn::new();
        txn.compare(Compare::Exists(self.session_key.clone()));
        txn.delete(keys::in_use(ino, self.session));
        self.commit_own(&txn)
    }

    fn leased(&self, key: Vec<u8>, value: Vec<u8>) -> Op {
        Op::Put {
            key,
            value,
            lease: Some(self.kv.lease()),
        }
    }

    fn commit_own(&self, txn: &Txn) -> Result<(), Error> {
        match self.kv.commit(txn)? {
            Outcome::Committed(_) => Ok(()),
            Outcome::Conflict => Err(Error::SessionEnded("its key is gone".to_owned())),
        }
    }

    /// The commit up to which every session that is alive has looked for orphans it uses.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn all_looked(&self) -> Result<Version, Error> {
        let (start, end) = keys::sessions();
        let mut all = Version::MAX;
        for (key, value) in self.kv.range(&start, &end, usize::MAX)? {
            let looked = decode_number(&value.value).ok_or_else(|| damaged(&key))?;
            // It had nothing open when it began.
            all = all.min(looked.max(value.created));
        }
        Ok(all)
    }

    /// Frees an orphan: its inode, attributes, commit records, and its bytes in packs, which
    /// were counted in `seen`.
    ///
    /// # Errors
    /// [`Error::StillNamed`], [`Error::NotFound`], [`Error::Stale`] when its contents are no longer
    /// those or another session has it open, or when the engine fails.
    pub fn purge(&self, seen: &Contents, freed: &BTreeMap<PackId, i64>) -> Result<(), Error> {
        let ino = seen.inode.ino;
        let outcome = self.transact(|transaction| {
            let inode = transaction.inode(ino)?;
            if inode.nlink > 0 {
                return Err(Error::StillNamed);
            }
            if inode.map != seen.inode.map {
                return Err(Error::Stale);
            }
            transaction.delete_inode(ino);
            let txn = transaction.txn();
            let (start, end) = keys::records(ino);
            if self.shared {
                if !self.can_purge(ino, seen.version)? {
                    return Err(Error::Stale);
                }
                txn.compare(Compare::RangeNotNewer {
                    start: start.clone(),
                    end: end.clone(),
                    version: seen.version,
                });
                let (start, end) = keys::uses(ino);
                txn.compare(Compare::RangeEmpty { start, end });
            }
            txn.delete_range(start, end);
            txn.delete(keys::orphan(ino));
            txn.delete(keys::stored(ino));
            txn.delete(keys::incompressible(ino));
            let (start, end) = keys::xattrs(ino);
            txn.delete_range(start, end);
            for (&pack, &bytes) in freed {
                transaction.use_pack(pack, -bytes);
            }
            Ok(())
        });
        match outcome {
            // The compares cannot tell what was in the way.
            Err(Error::Conflict) if self.shared => Err(Error::Stale),
            outcome => outcome,
        }
    }

    /// Whether no session has an orphan open and it has no record newer than `seen`.
    fn can_purge(&self, ino: Ino, seen: Version) -> Result<bool, Error> {
        let (start, end) = keys::uses(ino);
        let used = !self.kv.range(&start, &end, 1)?.is_empty();
        let records = self.contents(ino)?.records;
        Ok(!used && records.iter().all(|record| record.version <= seen))
    }
}
