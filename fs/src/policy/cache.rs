//! Looks policies up, once for each directory.
//!
//! All changes go through this process, so what was looked up holds until one of them says
//! otherwise: the generation then moves on. Open files compare it before they write.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use shale_store::index::ROOT;
use shale_store::index::schema::Inode;

use super::held::Setting;
use super::refusals::Refusals;
use super::{Authority, Defaults, Held, Key, Policy, Value};
use crate::{Error, Fs, Handle};

/// Directories remembered at most.
const MAX: usize = 65_536;

/// Policies of a mount.
#[derive(Debug)]
pub(crate) struct Policies {
    pub(super) defaults: Defaults,
    /// Changes whenever a policy may have. Never 0.
    generation: AtomicU64,
    dirs: RwLock<HashMap<u64, Arc<Held>>>,
    pub(super) refusals: Refusals,
}

impl Policies {
    pub(crate) fn new(defaults: Defaults) -> Self {
        Self {
            defaults,
            generation: AtomicU64::new(1),
            dirs: RwLock::default(),
            refusals: Refusals::default(),
        }
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    /// What holds at some directory may have changed.
    pub(crate) fn changed(&self) {
        let mut dirs = self.dirs.write();
        dirs.clear();
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// A file belongs to another directory now.
    pub(crate) fn moved(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    fn known(&self, dir: u64) -> Option<Arc<Held>> {
        self.dirs.read().get(&dir).cloned()
    }

    /// Remembers what was looked up in a generation, unless something has changed meanwhile.
    fn keep(&self, generation: u64, dir: u64, held: &Arc<Held>) {
        let mut dirs = self.dirs.write();
        if self.generation() != generation {
            return;
        }
        if dirs.len() >= MAX {
            dirs.clear();
        }
        dirs.insert(dir, Arc::clone(held));
    }
}

impl Fs {
    /// What holds at a directory.
    pub(super) fn held_at_dir(&self, dir: u64) -> Result<Arc<Held>, Error> {
        if let Some(held) = self.policies.known(dir) {
            return Ok(held);
        }
        let generation = self.policies.generation();
        let mut unknown = Vec::new();
        let mut at = dir;
        let mut held = loop {
            if let Some(held) = self.policies.known(at) {
                break held;
            }
            unknown.push(at);
            if at == ROOT {
                break Arc::default();
            }
            match self.namespace().inode(at) {
                Ok(inode) => at = inode.parent,
                // Above what has been deleted there may be nothing any more.
                Err(e) if e.errno() == libc::ENOENT => break Arc::default(),
                Err(e) => return Err(e.into()),
            }
        };
        for dir in unknown.into_iter().rev() {
            let own = self.settings_of(dir)?;
            if !own.is_empty() {
                held = Arc::new(held.with(own));
            }
            self.policies.keep(generation, dir, &held);
        }
        Ok(held)
    }

    /// What holds at an inode. Something with several names belongs where its bytes are counted.
    pub(super) fn held_at(&self, inode: &Inode) -> Result<Arc<Held>, Error> {
        if inode.is_dir() {
            return self.held_at_dir(inode.ino);
        }
        let above = self.held_at_dir(inode.parent)?;
        let own = self.settings_of(inode.ino)?;
        if own.is_empty() {
            return Ok(above);
        }
        Ok(Arc::new(above.with(own)))
    }

    /// What is set on an inode itself.
    pub(super) fn settings_of(&self, ino: u64) -> Result<Vec<Setting>, Error> {
        let mut settings = Vec::new();
        for authority in Authority::ALL {
            let prefix = authority.prefix().as_bytes();
            for (name, bytes) in self.namespace().xattrs_with(ino, prefix)? {
                let key = name
                    .strip_prefix(prefix)
                    .and_then(|name| std::str::from_utf8(name).ok())
                    .and_then(Key::from_name);
                match key.map(|key| Value::parse(key, &bytes)) {
                    Some(Ok(value)) => settings.push(Setting {
                        value,
                        authority,
                        ino,
                    }),
                    // Checked when it was set, but perhaps by a version that knew more.
                    _ => tracing::warn!(
                        inode = ino,
                        "the attribute {} of {} is not understood and has no effect; set it anew",
                        name.escape_ascii(),
                        self.namespace().path(ino)
                    ),
                }
            }
        }
        Ok(settings)
    }

    /// What is done with files that are created in a directory.
    pub(crate) fn policy_in(&self, dir: u64) -> Result<Policy, Error> {
        Ok(self.held_at_dir(dir)?.policy(&self.policies.defaults))
    }

    /// What is done with a file.
    pub(crate) fn policy_of(&self, inode: &Inode) -> Result<Policy, Error> {
        Ok(self.held_at(inode)?.policy(&self.policies.defaults))
    }

    /// What is known of a file that was just created and has nothing of its own: what held in its
    /// directory in a generation.
    pub(crate) fn begin_policy(&self, handle: &Handle, generation: u64, policy: &Policy) {
        handle.file.set_effort(policy.write);
        handle.policy.note(generation, policy.sync);
    }

    /// Brings an open file up to date before something is written to it. Returns whether the
    /// writer wants it durable.
    pub(crate) fn follow_policy(&self, handle: &Handle) -> Result<bool, Error> {
        let generation = self.policies.generation();
        if let Some(sync) = handle.policy.of(generation) {
            return Ok(sync);
        }
        let inode = self.namespace().inode(handle.ino())?;
        let sync = match handle.policy.last() {
            // Without a name it belongs nowhere: it stays as it was.
            Some(sync) if inode.nlink == 0 => sync,
            _ => {
                let policy = self.policy_of(&inode)?;
                handle.file.set_effort(policy.write);
                policy.sync
            }
        };
        handle.policy.note(generation, sync);
        Ok(sync)
    }
}

/// What a handle knows of the policy of its file, and since which generation.
#[derive(Debug, Default)]
pub(crate) struct Followed(AtomicU64);

impl Followed {
    fn of(&self, generation: u64) -> Option<bool> {
        let word = self.0.load(Ordering::Relaxed);
        (word >> 1 == generation).then_some(word & 1 == 1)
    }

    fn last(&self) -> Option<bool> {
        let word = self.0.load(Ordering::Relaxed);
        (word != 0).then_some(word & 1 == 1)
    }

    fn note(&self, generation: u64, sync: bool) {
        let word = generation << 1 | u64::from(sync);
        self.0.store(word, Ordering::Relaxed);
    }
}
