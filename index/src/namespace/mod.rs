//! Names, inodes and data commits: every operation is one transaction of the key-value engine.
//!
//! One lock per process makes transactions of this process follow each other, so that they do
//! not conflict among themselves; the compares they carry protect them from other processes.

mod attr;
mod create;
mod data;
mod packs;
mod path;
mod readdir;
mod remove;
mod rename;
mod transaction;

pub use attr::{AttrChange, Xattr, XattrMode};
pub use create::NewNode;
pub use data::{DataCommit, MapChange};
pub use readdir::DirEntry;
pub use remove::Removed;
pub use rename::{RenameMode, Renamed};

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::kv::{Compare, Op, Outcome, Txn};
use crate::schema::{
    self, Dentry, Ino, Inode, MapRoot, Rollup, Time, decode_number, encode_number, keys,
};
use crate::{Error, Kv};
use transaction::Transaction;

/// Inode number of the root directory.
pub const ROOT: u64 = 1;

/// First inode number that is handed out; the ones below are reserved.
const FIRST_INO: u64 = 16;

/// Inode numbers taken from the counter at a time.
const INO_BATCH: u64 = 4096;

/// Longest name of a directory entry.
pub const NAME_MAX: usize = 255;

/// Retries of a transaction that conflicts with another process.
const MAX_CONFLICTS: usize = 64;

/// Parents of directories remembered at most.
const PARENT_CACHE: usize = 65_536;

/// The namespace of a store.
#[derive(Debug)]
pub struct Namespace {
    kv: Arc<dyn Kv>,
    session: u64,
    // single-node: this lock orders the transactions of one process only.
    state: Mutex<State>,
    /// Why nothing may be changed any more.
    fence: OnceLock<String>,
    /// Names that were looked up recently, by inode.
    named: Mutex<HashMap<u64, Vec<u8>>>,
}

#[derive(Debug, Default)]
struct State {
    next_ino: u64,
    ino_limit: u64,
    next_seq: u64,
    /// Parent of each directory seen recently, to walk up quickly.
    // single-node: another node may move a directory; a conflict clears the whole cache.
    parents: HashMap<u64, u64>,
}

fn damaged(key: &[u8]) -> Error {
    Error::Corrupt {
        what: format!("index record {}", key.escape_ascii()),
        detail: "it does not decode".to_owned(),
    }
}

impl Namespace {
    /// Number of the last session that an engine has seen; 0 for a new one.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn last_session(kv: &dyn Kv) -> Result<u64, Error> {
        let counter = keys::counter("session");
        match kv.get(&counter)? {
            Some(found) => decode_number(&found.value).ok_or_else(|| damaged(&counter)),
            None => Ok(0),
        }
    }

    /// Opens the namespace in an engine and begins a session. An empty engine gets a root
    /// directory that belongs to `owner`.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn open(kv: Arc<dyn Kv>, min_session: u64, owner: (u32, u32)) -> Result<Self, Error> {
        let counter = keys::counter("session");
        let session = loop {
            let mut txn = Txn::new();
            let current = kv.get(&counter)?;
            let last = match &current {
                Some(found) => {
                    txn.compare(Compare::VersionIs(counter.clone(), found.version));
                    decode_number(&found.value).ok_or_else(|| damaged(&counter))?
                }
                None => {
                    txn.compare(Compare::Absent(counter.clone()));
                    0
                }
            };
            let session = (last + 1).max(min_session);
            txn.put(counter.clone(), encode_number(session));
            txn.ops.push(Op::Put {
                key: keys::session(session),
                value: encode_number(u64::from(std::process::id())),
                lease: Some(kv.lease()),
            });
            if kv.get(&keys::inode(ROOT))?.is_none() {
                let now = Time::now();
                let root = Inode {
                    ino: ROOT,
                    mode: schema::S_IFDIR | 0o755,
                    uid: owner.0,
                    gid: owner.1,
                    rdev: 0,
                    nlink: 2,
                    size: 0,
                    stored: 0,
                    atime: now,
                    mtime: now,
                    ctime: now,
                    btime: now,
                    parent: ROOT,
                    chunk_shift: 20,
                    phase: schema::Phase::New,
                    target: Vec::new(),
                    map: MapRoot::Inline(Vec::new()),
                };
                txn.compare(Compare::Absent(keys::inode(ROOT)));
                txn.put(keys::inode(ROOT), root.encode());
            }
            match kv.commit(&txn)? {
                Outcome::Committed(version) => {
                    kv.sync(version)?;
                    break session;
                }
                Outcome::Conflict | Outcome::Unknown => {}
            }
        };
        Ok(Self {
            kv,
            session,
            state: Mutex::new(State::default()),
            fence: OnceLock::new(),
            named: Mutex::default(),
        })
    }

    /// The namespace in an engine that is only read. No session begins, and every change fails
    /// where the engine refuses it.
    #[must_use]
    pub fn read_only(kv: Arc<dyn Kv>) -> Self {
        Self {
            kv,
            session: 0,
            state: Mutex::new(State::default()),
            fence: OnceLock::new(),
            named: Mutex::default(),
        }
    }

    /// The engine.
    #[must_use]
    pub fn kv(&self) -> &Arc<dyn Kv> {
        &self.kv
    }

    /// Refuses every change from now on; what there is can be read.
    pub fn fence(&self, why: &str) {
        let _ = self.fence.set(why.to_owned());
    }

    /// Number of this session.
    #[must_use]
    pub fn session(&self) -> u64 {
        self.session
    }

    /// An inode by number.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is none, or when the engine fails.
    pub fn inode(&self, ino: Ino) -> Result<Inode, Error> {
        let key = keys::inode(ino);
        match self.kv.get(&key)? {
            Some(found) => Inode::decode(ino, &found.value).ok_or_else(|| damaged(&key)),
            None => Err(Error::NotFound),
        }
    }

    /// What a name in a directory stands for.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NameTooLong`], or when the engine fails.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Inode, Error> {
        if name.len() > NAME_MAX {
            return Err(Error::NameTooLong);
        }
        let key = keys::dentry(parent, name);
        let Some(found) = self.kv.get(&key)? else {
            return Err(Error::NotFound);
        };
        let dentry = Dentry::decode(&found.value).ok_or_else(|| damaged(&key))?;
        self.inode(dentry.ino)
    }

    /// Totals below a directory.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn rollup(&self, dir: Ino) -> Result<Rollup, Error> {
        let key = keys::rollup(dir);
        match self.kv.get(&key)? {
            Some(found) => Rollup::decode(&found.value).ok_or_else(|| damaged(&key)),
            None => Ok(Rollup::default()),
        }
    }

    /// Inodes without a name that wait to be freed.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn orphans(&self) -> Result<Vec<u64>, Error> {
        let (start, end) = keys::orphans();
        let found = self.kv.range(&start, &end, usize::MAX)?;
        Ok(found
            .iter()
            .filter_map(|(key, _)| keys::orphan_of(key))
            .collect())
    }

    /// Up to `limit` files that wait to be settled, from an inode number on.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn stored_files(&self, from: Ino, limit: usize) -> Result<Vec<u64>, Error> {
        let (start, end) = keys::stored_from(from);
        let found = self.kv.range(&start, &end, limit)?;
        Ok(found
            .iter()
            .filter_map(|(key, _)| keys::stored_of(key))
            .collect())
    }

    /// Up to `limit` incompressible files, from an inode number on.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn incompressible_files(&self, from: Ino, limit: usize) -> Result<Vec<u64>, Error> {
        let (start, end) = keys::incompressible_from(from);
        let found = self.kv.range(&start, &end, limit)?;
        Ok(found
            .iter()
            .filter_map(|(key, _)| keys::incompressible_of(key))
            .collect())
    }

    /// Takes back what says that this session is alive. Nothing may be changed afterwards.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn end_session(&self) -> Result<(), Error> {
        self.transact(|transaction| {
            transaction.txn().delete(keys::session(self.session()));
            Ok(())
        })
    }

    /// Runs `body` as one transaction; again from the start when it conflicts with another process.
    fn transact<T>(
        &self,
        mut body: impl FnMut(&mut Transaction<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        if let Some(why) = self.fence.get() {
            return Err(Error::Fenced(why.clone()));
        }
        let mut state = self.state.lock();
        for _ in 0..MAX_CONFLICTS {
            let mut transaction = Transaction::new(self, &mut state);
            let result = body(&mut transaction)?;
            match transaction.commit()? {
                Outcome::Committed(_) => return Ok(result),
                Outcome::Conflict => state.parents.clear(),
                Outcome::Unknown => break,
            }
        }
        Err(Error::Conflict)
    }
}

#[cfg(test)]
mod tests;
