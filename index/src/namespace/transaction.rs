//! A transaction in the making.
//!
//! Whatever a transaction has read and decided by, it compares at its commit. It may therefore
//! begin with what this process remembers of earlier reads: if that is outdated, the transaction
//! conflicts, or its body refuses, and it runs once more on fresh reads.

use std::collections::{BTreeMap, BTreeSet};

use super::{Namespace, ROOT, damaged};
use crate::Error;
use crate::extent::{PackBytes, PackId};
use crate::kv::{Compare, Counter, Outcome, Txn, Version, Want};
use crate::schema::{
    Delta, Dentry, Ino, Inode, RecordId, Rollup, Time, decode_number, encode_freed, encode_number,
    keys, totals,
};

/// Inodes read and written, counters changed, all to be committed together.
pub(super) struct Transaction<'a> {
    namespace: &'a Namespace,
    /// Whether remembered reads may be used.
    trusting: bool,
    /// Whether no other transaction of this process runs.
    exclusive: bool,
    txn: Txn,
    inodes: BTreeMap<u64, Loaded>,
    totals: BTreeMap<u64, Counter>,
    packs: BTreeMap<PackId, i64>,
    /// Directories that pass on their totals in this transaction, or are noted to do so.
    passing: BTreeSet<u64>,
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
    pub(super) fn new(namespace: &'a Namespace, trusting: bool, exclusive: bool) -> Self {
        let mut txn = Txn::new();
        txn.compare(Compare::Exists(namespace.session_key.clone()));
        Self {
            namespace,
            trusting,
            exclusive,
            txn,
            inodes: BTreeMap::new(),
            totals: BTreeMap::new(),
            packs: BTreeMap::new(),
            passing: BTreeSet::new(),
        }
    }

    pub(super) fn txn(&mut self) -> &mut Txn {
        &mut self.txn
    }

    /// An id for a commit record of this session.
    pub(super) fn new_record(&self) -> RecordId {
        self.namespace.new_record()
    }

    /// Whether other sessions may commit at the same time.
    pub(super) fn is_shared(&self) -> bool {
        self.namespace.shared
    }

    /// Fails unless no other transaction of this process runs.
    pub(super) fn require_exclusive(&self) -> Result<(), Error> {
        if self.exclusive {
            Ok(())
        } else {
            Err(Error::Conflict)
        }
    }

    /// A copy of an inode, as this change sees it.
    pub(super) fn inode(&mut self, ino: Ino) -> Result<Inode, Error> {
        if let Some(loaded) = self.inodes.get(&ino) {
            if loaded.fate == Fate::Delete {
                return Err(Error::NotFound);
            }
            return Ok(loaded.inode.clone());
        }
        let remembered = self.trusting.then(|| self.namespace.memory.inode(ino));
        let (inode, version) = match remembered.flatten() {
            Some(known) => known,
            None => {
                let key = keys::inode(ino);
                let Some(found) = self.namespace.kv.get(&key)? else {
                    return Err(Error::NotFound);
                };
                let inode = Inode::decode(ino, &found.value).ok_or_else(|| damaged(&key))?;
                (inode, found.version)
            }
        };
        self.note(inode.clone(), version);
        Ok(inode)
    }

    /// Takes an inode that was read as of this transaction.
    pub(super) fn note(&mut self, inode: Inode, version: Version) {
        let loaded = Loaded {
            inode,
            version: Some(version),
            fate: Fate::Read,
        };
        self.inodes.insert(loaded.inode.ino, loaded);
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
        if self.trusting
            && let Some(known) = self.namespace.memory.name(parent, name)
        {
            let compare = match known {
                Some((_, version)) => Compare::VersionIs(key, version),
                None => Compare::Absent(key),
            };
            self.txn.compare(compare);
            return Ok(known.map(|(dentry, _)| dentry));
        }
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
    pub(super) fn new_ino(&self) -> Result<u64, Error> {
        self.namespace.new_ino()
    }

    /// The directory above a directory, as this change sees it.
    pub(super) fn parent_of(&mut self, dir: Ino) -> Result<u64, Error> {
        if let Some(loaded) = self.inodes.get(&dir) {
            return Ok(loaded.inode.parent);
        }
        self.namespace.parent_of(dir)
    }

    /// Notes that the names in a directory change, and how many directories it has more.
    pub(super) fn touch(&mut self, dir: Ino, subdirs: i64, now: Time) {
        self.add(dir, &totals::touched(subdirs, now));
    }

    fn add(&mut self, dir: Ino, delta: &Counter) {
        let sum = self.totals.entry(dir).or_default();
        *sum = sum.plus(delta);
    }

    /// Adds to the totals of a directory and of all above it. In a shared index those above get
    /// it later ([`Namespace::pass_totals_on`]).
    pub(super) fn account(&mut self, dir: Ino, delta: &Delta) -> Result<(), Error> {
        if *delta == Delta::default() {
            return Ok(());
        }
        if self.namespace.shared {
            let counter = if dir == ROOT {
                delta.counter()
            } else {
                delta.pending()
            };
            self.add(dir, &counter);
            return Ok(());
        }
        let mut dir = dir;
        loop {
            self.add(dir, &delta.counter());
            if dir == ROOT {
                return Ok(());
            }
            dir = self.parent_of(dir)?;
        }
    }

    /// Takes from a directory what the one above gets in this transaction.
    pub(super) fn pass_on(&mut self, dir: Ino, delta: &Delta) {
        self.passing.insert(dir);
        self.add(dir, &totals::passed_on(delta));
    }

    /// Notes that an inode has lost its last name.
    pub(super) fn put_orphan(&mut self, ino: Ino) {
        let session = encode_number(self.namespace.session);
        self.txn.put(keys::orphan(ino), session);
    }

    /// Adds to the live bytes of a pack. Where several sessions share the index, bytes are
    /// subtracted later ([`Namespace::drain_freed`]).
    pub(super) fn use_pack(&mut self, pack: PackId, delta: i64) {
        *self.packs.entry(pack).or_default() += delta;
    }

    /// What the directories above a directory count for it, with what this change has added. The
    /// transaction excludes everything that passes totals on.
    pub(super) fn passed(&mut self, dir: Ino) -> Result<Delta, Error> {
        let counter = self.namespace.totals(dir)?;
        let added = self.totals.get(&dir).copied().unwrap_or_default();
        let counter = counter.plus(&added);
        let pending = totals::pending(&counter);
        Ok(Rollup::of(&counter).as_delta().and(&pending.negated()))
    }

    /// Has the directory above get what a directory has to pass on, before it goes for good.
    pub(super) fn pass_rest_on(&mut self, dir: &Inode) -> Result<(), Error> {
        if !self.namespace.shared {
            return Ok(());
        }
        self.exclude_moves()?;
        let key = keys::totals(dir.ino);
        let mut snapshot = self.namespace.kv.get_many(&[Want::Counter(key.clone())])?;
        let found = snapshot.found.pop().and_then(|mut pairs| pairs.pop());
        let counter = match found {
            Some((_, found)) => Counter::decode(&found.value).ok_or_else(|| damaged(&key))?,
            None => Counter::default(),
        };
        // Names that go at the same moment count, too.
        self.txn.compare(Compare::RangeNotNewer {
            end: crate::kv::prefix_end(&key),
            start: key,
            version: snapshot.version,
        });
        let pending = totals::pending(&counter);
        self.pass_on(dir.ino, &pending);
        self.account(dir.parent, &pending)
    }

    /// Has this transaction exclude every other that does so, in any session.
    pub(super) fn exclude_moves(&mut self) -> Result<(), Error> {
        let key = keys::single("moves");
        let wants = [Want::Key(key.clone())];
        let found = self.namespace.kv.get_many(&wants)?.found.pop();
        let number = match found.and_then(|mut pairs| pairs.pop()) {
            Some((_, value)) => {
                self.txn
                    .compare(Compare::VersionIs(key.clone(), value.version));
                decode_number(&value.value).ok_or_else(|| damaged(&key))?
            }
            None => {
                self.txn.compare(Compare::Absent(key.clone()));
                0
            }
        };
        self.txn.put(key, encode_number(number.wrapping_add(1)));
        Ok(())
    }

    pub(super) fn commit(mut self) -> Result<Outcome, Error> {
        let inodes = std::mem::take(&mut self.inodes);
        for (&ino, loaded) in &inodes {
            let key = keys::inode(ino);
            // The number of a new one is in no other hands.
            if let Some(version) = loaded.version {
                self.txn.compare(Compare::VersionIs(key.clone(), version));
            }
            match loaded.fate {
                Fate::Read => {}
                Fate::Put => {
                    self.txn.put(key, loaded.inode.encode());
                }
                Fate::Delete => {
                    self.txn.delete(key);
                    if loaded.inode.is_dir() {
                        self.totals.remove(&ino);
                        self.txn.drop_counter(keys::totals(ino));
                    }
                }
            }
        }
        for (dir, delta) in std::mem::take(&mut self.totals) {
            if delta.is_zero() {
                continue;
            }
            self.txn.add(keys::totals(dir), delta);
            if totals::pending(&delta) != Delta::default() && self.passing.insert(dir) {
                self.txn.put(keys::unpassed(dir), Vec::new());
            }
        }
        self.put_packs();
        let outcome = self.namespace.kv.commit(&self.txn)?;
        if self.namespace.shared {
            self.remember(inodes, outcome);
        }
        Ok(outcome)
    }

    fn put_packs(&mut self) {
        let mut freed = Vec::new();
        for (pack, delta) in std::mem::take(&mut self.packs) {
            if delta < 0 && self.namespace.shared {
                let bytes = delta.unsigned_abs();
                freed.push(PackBytes { pack, bytes });
            } else if delta != 0 {
                self.txn.add(keys::pack(pack), Counter::of(delta));
            }
        }
        if !freed.is_empty() {
            let RecordId { session, seq } = self.namespace.new_record();
            self.txn
                .put(keys::freed(session, seq), encode_freed(&freed));
        }
    }

    /// Remembers what a commit has made of inodes, or forgets what was wrong.
    fn remember(&self, inodes: BTreeMap<u64, Loaded>, outcome: Outcome) {
        let memory = &self.namespace.memory;
        for (ino, loaded) in inodes {
            match (outcome, loaded.fate) {
                (Outcome::Committed(version), Fate::Put) => {
                    memory.note_inode(&loaded.inode, version);
                }
                (Outcome::Committed(_), Fate::Read) => {}
                _ => memory.forget_inode(ino),
            }
        }
        for op in &self.txn.ops {
            match op {
                crate::kv::Op::Put { key, .. } | crate::kv::Op::Delete(key) => {
                    if let Some((parent, _, name)) = keys::dentry_of(key) {
                        memory.forget_name(parent, name);
                    }
                }
                _ => {}
            }
        }
    }
}
