//! What this process remembers of names and inodes that it has read from a shared index.
//!
//! Other sessions may have changed any of it. It saves requests where a commit compares it, or
//! where one snapshot verifies it; it is never an answer by itself.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::kv::Version;
use crate::schema::{Dentry, Ino, Inode};

/// Entries of each kind at most.
const MOST: usize = 65_536;

/// A directory and a name in it.
type NameKey = (Ino, Box<[u8]>);

/// A name as it was read: what it stands for, or that there is no such name.
type Name = Option<(Dentry, Version)>;

#[derive(Debug, Default)]
pub(super) struct Memory {
    inodes: Mutex<HashMap<Ino, (Inode, Version)>>,
    names: Mutex<HashMap<NameKey, Name>>,
}

impl Memory {
    pub(super) fn inode(&self, ino: Ino) -> Option<(Inode, Version)> {
        self.inodes.lock().get(&ino).cloned()
    }

    pub(super) fn note_inode(&self, inode: &Inode, version: Version) {
        let mut inodes = self.inodes.lock();
        if inodes.len() >= MOST {
            inodes.clear();
        }
        inodes.insert(inode.ino, (inode.clone(), version));
    }

    pub(super) fn forget_inode(&self, ino: Ino) {
        self.inodes.lock().remove(&ino);
    }

    pub(super) fn name(&self, parent: Ino, name: &[u8]) -> Option<Name> {
        let key = (parent, Box::from(name));
        self.names.lock().get(&key).copied()
    }

    pub(super) fn note_name(&self, parent: Ino, name: &[u8], known: Name) {
        let mut names = self.names.lock();
        if names.len() >= MOST {
            names.clear();
        }
        names.insert((parent, name.into()), known);
    }

    pub(super) fn forget_name(&self, parent: Ino, name: &[u8]) {
        let key = (parent, Box::from(name));
        self.names.lock().remove(&key);
    }
}
