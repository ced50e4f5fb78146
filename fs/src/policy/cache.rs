//! Looks policies up, once for each directory.
//!
//! A looked-up policy applies until a change advances the generation. Open files compare the
//! generation before they write.
//!
//! single-node: every change of policies and of directories goes through this process, so it can
//! advance the generation.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use shale_index::schema::Inode;
use shale_index::{Ino, ROOT};
use shale_store::Store;

use super::effective::Setting;
use super::refusals::Refusals;
use super::{Authority, Effective, Key, MountDefaults, Policy, Value};
use crate::Error;

/// Directories remembered at most.
const MAX: usize = 65_536;

/// Policies of a mount.
#[derive(Debug)]
pub(crate) struct Policies {
    pub(super) defaults: MountDefaults,
    /// Advances whenever a policy may have changed. Never 0.
    generation: AtomicU64,
    dirs: RwLock<HashMap<Ino, Arc<Effective>>>,
    pub(super) refusals: Refusals,
}

impl Policies {
    pub(crate) fn new(defaults: MountDefaults) -> Self {
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

    /// The policies of some directory may have changed.
    pub(crate) fn changed(&self) {
        let mut dirs = self.dirs.write();
        dirs.clear();
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// A file has moved to another directory.
    pub(crate) fn moved(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// Logs why an attribute was refused.
    pub(crate) fn note_refusal(&self, store: &Store, ino: Ino, name: &[u8], reason: &str) {
        self.refusals.log(store, ino, name, reason);
    }

    fn known(&self, dir: Ino) -> Option<Arc<Effective>> {
        self.dirs.read().get(&dir).cloned()
    }

    /// Remembers the result of a look-up in a generation, unless the generation has advanced.
    fn keep(&self, generation: u64, dir: Ino, effective: &Arc<Effective>) {
        let mut dirs = self.dirs.write();
        if self.generation() != generation {
            return;
        }
        if dirs.len() >= MAX {
            dirs.clear();
        }
        dirs.insert(dir, Arc::clone(effective));
    }
}

impl Policies {
    /// The policies in effect at a directory.
    pub(super) fn effective_in(&self, store: &Store, dir: Ino) -> Result<Arc<Effective>, Error> {
        if let Some(effective) = self.known(dir) {
            return Ok(effective);
        }
        let generation = self.generation();
        let mut unknown = Vec::new();
        let mut at = dir;
        let mut effective = loop {
            if let Some(effective) = self.known(at) {
                break effective;
            }
            unknown.push(at);
            if at == ROOT {
                break Arc::default();
            }
            match store.stat(at).map_err(Error::from) {
                Ok(current) => at = current.inode.parent,
                // A deleted directory may no longer have a parent.
                Err(e) if e.is_missing() => break Arc::default(),
                Err(e) => return Err(e),
            }
        };
        for dir in unknown.into_iter().rev() {
            let own = Self::settings_of(store, dir)?;
            if !own.is_empty() {
                effective = Arc::new(effective.with(own));
            }
            self.keep(generation, dir, &effective);
        }
        Ok(effective)
    }

    /// The policies in effect at an inode. A file with several names belongs to the directory in
    /// which its bytes are counted.
    pub(super) fn effective_at(
        &self,
        store: &Store,
        inode: &Inode,
    ) -> Result<Arc<Effective>, Error> {
        if inode.is_dir() {
            return self.effective_in(store, inode.ino);
        }
        let above = self.effective_in(store, inode.parent)?;
        let own = Self::settings_of(store, inode.ino)?;
        if own.is_empty() {
            return Ok(above);
        }
        Ok(Arc::new(above.with(own)))
    }

    /// The values set on an inode itself.
    pub(super) fn settings_of(store: &Store, ino: Ino) -> Result<Vec<Setting>, Error> {
        let mut settings = Vec::new();
        for authority in Authority::ALL {
            let prefix = authority.prefix().as_bytes();
            for (name, bytes) in store.xattrs_with(ino, prefix)? {
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
                    // It was valid when it was set, perhaps for a newer version.
                    _ => tracing::warn!(
                        inode = ino,
                        "{}: attribute {} has a value that this version does not know and is \
                         ignored; set it again",
                        store.path_of(ino),
                        name.escape_ascii()
                    ),
                }
            }
        }
        Ok(settings)
    }

    /// The policy of files that are created in a directory.
    pub(crate) fn policy_in(&self, store: &Store, dir: Ino) -> Result<Policy, Error> {
        Ok(self.effective_in(store, dir)?.policy(&self.defaults))
    }

    /// The policy of a file.
    pub(crate) fn policy_of(&self, store: &Store, inode: &Inode) -> Result<Policy, Error> {
        Ok(self.effective_at(store, inode)?.policy(&self.defaults))
    }
}

/// Whether the policy of an open file asks for durability, as of a generation.
#[derive(Debug, Default)]
pub(crate) struct HandlePolicy(AtomicU64);

impl HandlePolicy {
    pub(crate) fn is_of(&self, generation: u64) -> bool {
        self.0.load(Ordering::Relaxed) >> 1 == generation
    }

    /// As of the last generation that the file followed.
    pub(crate) fn asks_for_sync(&self) -> bool {
        self.last() == Some(true)
    }

    pub(crate) fn last(&self) -> Option<bool> {
        let word = self.0.load(Ordering::Relaxed);
        (word != 0).then_some(word & 1 == 1)
    }

    pub(crate) fn note(&self, generation: u64, sync: bool) {
        let word = generation << 1 | u64::from(sync);
        self.0.store(word, Ordering::Relaxed);
    }
}
