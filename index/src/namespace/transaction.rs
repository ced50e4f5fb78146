//! A transaction in the making.

use std::collections::BTreeMap;

use super::{FIRST_INO, INO_BATCH, Namespace, PARENT_CACHE, ROOT, State, damaged};
use crate::Error;
use crate::extent::PackId;
use crate::kv::{Compare, Outcome, Txn, Version};
use crate::schema::{Delta, Dentry, Ino, Inode, Rollup, decode_number, encode_number, keys};

/// Inodes read and written, roll-ups and pack counters changed, all to be committed together.
pub(super) struct Transaction<'a> {
    namespace: &'a Namespace,
    state: &'a mut State,
    txn: Txn,
    inodes: BTreeMap<u64, Loaded>,
    rollups: BTreeMap<u64, Delta>,
    packs: BTreeMap<PackId, i64>,
}

struct Loaded {
    inode: Inode,
    /// `None` for an inode that this change creates.
    version: Option<Version>,
    fate: Fate,
}

#[derive(PartialEq)]
enum Fate {
    Read,
    Put,
    Delete,
}

impl<'a> Transaction<'a> {
    pub(super) fn new(namespace: &'a Namespace, state: &'a mut State) -> Self {
        let mut txn = Txn::new();
        txn.compare(Compare::Exists(keys::session(namespace.session)));
        Self {
            namespace,
            state,
            txn,
            inodes: BTreeMap::new(),
            rollups: BTreeMap::new(),
            packs: BTreeMap::new(),
        }
    }

    pub(super) fn txn(&mut self) -> &mut Txn {
        &mut self.txn
    }

    pub(super) fn session(&self) -> u64 {
        self.namespace.session
    }

    /// The next number for a commit record of this session.
    pub(super) fn next_seq(&mut self) -> u64 {
        self.state.next_seq += 1;
        self.state.next_seq
    }

    /// A copy of an inode, as this change sees it.
    pub(super) fn inode(&mut self, ino: Ino) -> Result<Inode, Error> {
        if let Some(loaded) = self.inodes.get(&ino) {
            if loaded.fate == Fate::Delete {
                return Err(Error::NotFound);
            }
            return Ok(loaded.inode.clone());
        }
        let key = keys::inode(ino);
        let Some(found) = self.namespace.kv.get(&key)? else {
            return Err(Error::NotFound);
        };
        let inode = Inode::decode(ino, &found.value).ok_or_else(|| damaged(&key))?;
        self.inodes.insert(
            ino,
            Loaded {
                inode: inode.clone(),
                version: Some(found.version),
                fate: Fate::Read,
            },
        );
        Ok(inode)
    }

    /// A directory that still has a name.
    pub(super) fn dir(&mut self, ino: Ino) -> Result<Inode, Error> {
        let inode = self.inode(ino)?;
        if !inode.is_dir() {
            return Err(Error::NotDirectory);
        }
        if inode.nlink == 0 {
            return Err(Error::NotFound);
        }
        Ok(inode)
    }

    /// Stores an inode; one that was not read before is new.
    pub(super) fn put_inode(&mut self, inode: Inode) {
        let version = self
            .inodes
            .get(&inode.ino)
            .and_then(|loaded| loaded.version);
        self.inodes.insert(
            inode.ino,
            Loaded {
                inode,
                version,
                fate: Fate::Put,
            },
        );
    }

    pub(super) fn delete_inode(&mut self, ino: Ino) {
        if let Some(loaded) = self.inodes.get_mut(&ino) {
            loaded.fate = Fate::Delete;
        }
    }

    /// A directory entry, with a compare that it stays what it is.
    pub(super) fn dentry(&mut self, parent: Ino, name: &[u8]) -> Result<Option<Dentry>, Error> {
        let key = keys::dentry(parent, name);
        match self.namespace.kv.get(&key)? {
            Some(found) => {
                let dentry = Dentry::decode(&found.value).ok_or_else(|| damaged(&key))?;
                self.txn.compare(Compare::VersionIs(key, found.version));
                Ok(Some(dentry))
            }
            None => {
                self.txn.compare(Compare::Absent(key));
                Ok(None)
            }
        }
    }

    pub(super) fn put_dentry(&mut self, parent: Ino, name: &[u8], inode: &Inode) {
        let kind = inode.mode & crate::schema::S_IFMT;
        let dentry = Dentry {
            ino: inode.ino,
            kind,
        };
        self.txn.put(keys::dentry(parent, name), dentry.encode());
    }

    pub(super) fn delete_dentry(&mut self, parent: Ino, name: &[u8]) {
        self.txn.delete(keys::dentry(parent, name));
    }

    /// Refuses unless a directory is empty, now and at the commit.
    pub(super) fn require_empty(&mut self, dir: Ino) -> Result<(), Error> {
        let (start, end) = keys::dentries(dir);
        if !self.namespace.kv.range(&start, &end, 1)?.is_empty() {
            return Err(Error::NotEmpty);
        }
        self.txn.compare(Compare::RangeEmpty { start, end });
        Ok(())
    }

    /// A fresh inode number. Numbers of a change that is not committed are skipped for good.
    pub(super) fn new_ino(&mut self) -> Result<u64, Error> {
        if self.state.next_ino >= self.state.ino_limit {
            let (first, limit) = self.grab_inos()?;
            self.state.next_ino = first;
            self.state.ino_limit = limit;
        }
        self.state.next_ino += 1;
        Ok(self.state.next_ino - 1)
    }

    fn grab_inos(&self) -> Result<(u64, u64), Error> {
        let key = keys::counter("ino");
        loop {
            let mut txn = Txn::new();
            let first = match self.namespace.kv.get(&key)? {
                Some(found) => {
                    txn.compare(Compare::VersionIs(key.clone(), found.version));
                    decode_number(&found.value).ok_or_else(|| damaged(&key))?
                }
                None => {
                    txn.compare(Compare::Absent(key.clone()));
                    FIRST_INO
                }
            };
            txn.put(key.clone(), encode_number(first + INO_BATCH));
            if let Outcome::Committed(_) = self.namespace.kv.commit(&txn)? {
                return Ok((first, first + INO_BATCH));
            }
        }
    }

    /// The directory above a directory, as this change sees it.
    pub(super) fn parent_of(&mut self, dir: Ino) -> Result<u64, Error> {
        if let Some(loaded) = self.inodes.get(&dir) {
            return Ok(loaded.inode.parent);
        }
        if let Some(&parent) = self.state.parents.get(&dir) {
            return Ok(parent);
        }
        let parent = self.namespace.inode(dir)?.parent;
        if self.state.parents.len() >= PARENT_CACHE {
            self.state.parents.clear();
        }
        self.state.parents.insert(dir, parent);
        Ok(parent)
    }

    /// Forgets what is remembered of the place of a directory that moves or goes.
    pub(super) fn forget_parent(&mut self, dir: Ino) {
        self.state.parents.remove(&dir);
    }

    /// Adds to the totals of a directory and of all above it.
    pub(super) fn account(&mut self, dir: Ino, delta: &Delta) -> Result<(), Error> {
        if *delta == Delta::default() {
            return Ok(());
        }
        let mut dir = dir;
        loop {
            let sum = self.rollups.entry(dir).or_default();
            *sum = sum.and(delta);
            if dir == ROOT {
                return Ok(());
            }
            dir = self.parent_of(dir)?;
        }
    }

    /// Adds to the live bytes of a pack.
    pub(super) fn use_pack(&mut self, pack: PackId, delta: i64) {
        *self.packs.entry(pack).or_default() += delta;
    }

    /// The totals of a directory, with what this change has added to them.
    pub(super) fn rollup(&mut self, dir: Ino) -> Result<Rollup, Error> {
        let stored = self.namespace.rollup(dir)?;
        Ok(self
            .rollups
            .get(&dir)
            .map_or(stored, |delta| stored.plus(delta)))
    }

    fn number(&self, key: &[u8]) -> Result<u64, Error> {
        match self.namespace.kv.get(key)? {
            Some(found) => decode_number(&found.value).ok_or_else(|| damaged(key)),
            None => Ok(0),
        }
    }

    pub(super) fn commit(mut self) -> Result<Outcome, Error> {
        for (ino, loaded) in std::mem::take(&mut self.inodes) {
            let key = keys::inode(ino);
            self.txn.compare(match loaded.version {
                Some(version) => Compare::VersionIs(key.clone(), version),
                None => Compare::Absent(key.clone()),
            });
            match loaded.fate {
                Fate::Read => {}
                Fate::Put => {
                    self.txn.put(key, loaded.inode.encode());
                }
                Fate::Delete => {
                    self.txn.delete(key);
                    self.rollups.remove(&ino);
                    self.txn.delete(keys::rollup(ino));
                }
            }
        }
        // single-node: totals and live bytes are read and put without a compare, under the lock
        // of this process.
        for (dir, delta) in std::mem::take(&mut self.rollups) {
            if delta == Delta::default() {
                continue;
            }
            let total = self.namespace.rollup(dir)?.plus(&delta);
            self.txn.put(keys::rollup(dir), total.encode());
        }
        for (pack, delta) in std::mem::take(&mut self.packs) {
            let key = keys::pack(pack);
            let live = self.number(&key)?.saturating_add_signed(delta);
            self.txn.put(key, encode_number(live));
        }
        self.namespace.kv.commit(&self.txn)
    }
}
