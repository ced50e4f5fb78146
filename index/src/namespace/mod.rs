//! Names, inodes and data commits: every operation is one transaction of the key-value engine.
//!
//! Transactions run side by side. Each compares at its commit what it has read, and runs again
//! when another one came first. In an index that one process has for itself, the totals of all
//! directories above a change are part of its transaction; there a move of a directory waits for
//! the others and keeps them waiting, so that each change is counted along the current path.

mod attr;
mod contents;
mod create;
mod data;
mod memory;
mod numbers;
mod open;
mod orphans;
mod packs;
mod path;
mod readdir;
mod remove;
mod rename;
mod rollup;
mod transaction;
mod upgrade;

pub use attr::{AttrChange, Xattr, XattrMode};
pub use contents::{Contents, Record};
pub use create::NewNode;
pub use data::{DataCommit, Fold, MapChange, RecordCommit};
pub use numbers::BLOCK_BITS as INO_BLOCK_BITS;
pub use orphans::Orphan;
pub use readdir::DirEntry;
pub use remove::Removed;
pub use rename::{RenameMode, Renamed};
pub use upgrade::{SEQUENCE, old_sequences, upgraded};

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};

use crate::kv::{Outcome, Want};
use crate::schema::{Dentry, Ino, Inode, keys};
use crate::{Error, Kv};
use memory::Memory;
use numbers::InoBlock;
use transaction::Transaction;

/// Inode number of the root directory.
pub const ROOT: u64 = 1;

/// Longest name of a directory entry.
pub const NAME_MAX: usize = 255;

/// Retries of a transaction that conflicts with another one.
const MAX_CONFLICTS: u32 = 256;

/// Conflicts after which a transaction waits before it is tried again, for this long at first.
const PATIENT_CONFLICTS: u32 = 4;
const FIRST_PAUSE: Duration = Duration::from_micros(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// Parents of directories remembered at most.
const PARENT_CACHE: usize = 65_536;

/// The namespace of a store.
#[derive(Debug)]
pub struct Namespace {
    kv: Arc<dyn Kv>,
    session: u64,
    session_key: Vec<u8>,
    /// Other sessions may use the index at the same time.
    shared: bool,
    /// The index has the keys of format 2, and is only read.
    old_format: bool,
    /// Held to read by transactions, and to write by those that move a directory.
    moves: RwLock<()>,
    inos: Mutex<InoBlock>,
    next_seq: AtomicU64,
    /// Up to which commit this session has said which orphans it uses.
    looked: AtomicU64,
    /// Parents of directories seen recently, to walk up quickly. Right as long as `moves` is held,
    /// and only used where one process has the index for itself.
    parents: Mutex<HashMap<u64, u64>>,
    memory: Memory,
    /// Why nothing may be changed any more.
    fence: OnceLock<String>,
    /// Names that were looked up recently, by inode.
    named: Mutex<HashMap<u64, Vec<u8>>>,
}

fn damaged(key: &[u8]) -> Error {
    Error::Corrupt {
        what: format!("index record {}", key.escape_ascii()),
        detail: "it does not decode".to_owned(),
    }
}

impl Namespace {
    /// The engine.
    #[must_use]
    pub fn kv(&self) -> &Arc<dyn Kv> {
        &self.kv
    }

    /// Whether other sessions may change the index at the same time.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.shared
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

    /// An inode by number, as of its last commit.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is none, or when the engine fails.
    pub fn inode(&self, ino: Ino) -> Result<Inode, Error> {
        if self.shared {
            return Ok(self.contents(ino)?.current());
        }
        let key = keys::inode(ino);
        let Some(found) = self.kv.get(&key)? else {
            return Err(Error::NotFound);
        };
        let inode = Inode::decode(ino, &found.value).ok_or_else(|| damaged(&key))?;
        self.with_totals(inode)
    }

    /// What a name in a directory stands for.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NameTooLong`], or when the engine fails.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Inode, Error> {
        if name.len() > NAME_MAX {
            return Err(Error::NameTooLong);
        }
        if self.shared {
            return self.lookup_shared(parent, name);
        }
        let key = keys::dentry(parent, name);
        let Some(found) = self.kv.get(&key)? else {
            return Err(Error::NotFound);
        };
        let dentry = Dentry::decode(&found.value).ok_or_else(|| damaged(&key))?;
        self.inode(dentry.ino)
    }

    /// The name and the inode that it stood for the last time, in one snapshot.
    fn lookup_shared(&self, parent: Ino, name: &[u8]) -> Result<Inode, Error> {
        let key = keys::dentry(parent, name);
        let mut guess = self.memory.name(parent, name).flatten().map(|(d, _)| d.ino);
        loop {
            let mut wants = vec![Want::Key(key.clone()), Want::Key(keys::inode(parent))];
            if let Some(ino) = guess {
                wants.push(contents::want(ino));
            }
            let mut snapshot = self.kv.get_many(&wants)?;
            let of_guess = guess.and_then(|_| snapshot.found.pop());
            self.note_dir(parent, snapshot.found.pop())?;
            let Some((_, found)) = snapshot.found.pop().and_then(|mut pairs| pairs.pop()) else {
                self.memory.note_name(parent, name, None);
                return Err(Error::NotFound);
            };
            let dentry = Dentry::decode(&found.value).ok_or_else(|| damaged(&key))?;
            let known = Some((dentry, found.version));
            self.memory.note_name(parent, name, known);
            if guess == Some(dentry.ino)
                && let Some(pairs) = of_guess
            {
                let contents = Contents::parse(dentry.ino, snapshot.version, pairs)?;
                self.memory
                    .note_inode(&contents.inode, contents.inode_version);
                return Ok(contents.current());
            }
            guess = Some(dentry.ino);
        }
    }

    fn note_dir(&self, dir: Ino, found: Option<crate::kv::Found>) -> Result<(), Error> {
        if let Some((key, found)) = found.and_then(|mut pairs| pairs.pop()) {
            let inode = Inode::decode(dir, &found.value).ok_or_else(|| damaged(&key))?;
            self.memory.note_inode(&inode, found.version);
        }
        Ok(())
    }

    /// The directory above a directory.
    fn parent_of(&self, dir: Ino) -> Result<u64, Error> {
        if !self.shared
            && let Some(&parent) = self.parents.lock().get(&dir)
        {
            return Ok(parent);
        }
        let key = keys::inode(dir);
        let Some(found) = self.kv.get(&key)? else {
            return Err(Error::NotFound);
        };
        let inode = Inode::decode(dir, &found.value).ok_or_else(|| damaged(&key))?;
        if !self.shared {
            let mut parents = self.parents.lock();
            if parents.len() >= PARENT_CACHE {
                parents.clear();
            }
            parents.insert(dir, inode.parent);
        }
        Ok(inode.parent)
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

    /// Runs `body` as one transaction; again from the start when it conflicts with another one.
    fn transact<T>(
        &self,
        body: impl FnMut(&mut Transaction<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.transact_as(false, body)
    }

    /// The same; an `exclusive` one has no other transaction of this process beside it.
    fn transact_as<T>(
        &self,
        exclusive: bool,
        mut body: impl FnMut(&mut Transaction<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut trusting = self.shared;
        let mut pause = FIRST_PAUSE;
        for conflicts in 0..MAX_CONFLICTS {
            if let Some(why) = self.fence.get() {
                return Err(Error::Fenced(why.clone()));
            }
            let shared_guard = (!exclusive).then(|| self.moves.read());
            let exclusive_guard = exclusive.then(|| self.moves.write());
            let mut transaction = Transaction::new(self, trusting, exclusive);
            match body(&mut transaction) {
                Ok(result) => {
                    if let Outcome::Committed(_) = transaction.commit()? {
                        return Ok(result);
                    }
                }
                // What it decided by may be outdated.
                Err(_) if trusting => {}
                Err(error) => return Err(error),
            }
            trusting = false;
            drop((shared_guard, exclusive_guard));
            if conflicts >= PATIENT_CONFLICTS {
                // Different for each thread, so that they do not meet again.
                let salt = std::ptr::from_ref(&conflicts) as usize as u64 >> 4;
                let share = 50 + (salt.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 57) % 50;
                std::thread::sleep(pause * share as u32 / 100);
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
        Err(Error::Conflict)
    }
}

#[cfg(test)]
mod requests;
#[cfg(test)]
mod tests;
