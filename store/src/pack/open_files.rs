//! Open files of packs: a bounded cache of descriptors.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use shale_backing::{Access, Backing, BackingFile};

use super::PackId;
use crate::primitives::Mutex;

/// Pack files held open for reading at most.
const MAX_OPEN: usize = 256;

/// Pack files that were used lately.
#[derive(Debug)]
pub(super) struct OpenFiles {
    backing: Arc<dyn Backing>,
    recent: Mutex<Recent>,
}

#[derive(Debug, Default)]
struct Recent {
    /// Each with the clock at its last use.
    files: HashMap<PackId, (Arc<dyn BackingFile>, u64)>,
    clock: u64,
    /// Packs deleted so far.
    deleted: u64,
}

impl OpenFiles {
    pub(super) fn new(backing: Arc<dyn Backing>) -> Self {
        Self {
            backing,
            recent: Mutex::default(),
        }
    }

    /// The file of a pack, opened if necessary.
    pub(super) fn get(&self, pack: PackId) -> io::Result<Arc<dyn BackingFile>> {
        let deleted = {
            let mut recent = self.recent.lock();
            if let Some(file) = recent.get(pack) {
                return Ok(file);
            }
            recent.deleted
        };
        let file = self.backing.open(&pack.path(), Access::Read)?;
        let mut recent = self.recent.lock();
        // A pack that was deleted meanwhile would keep its space as long as it is open.
        if recent.deleted == deleted {
            recent.insert(pack, Arc::clone(&file));
        }
        Ok(file)
    }

    /// Remembers the file of a pack that was just created.
    pub(super) fn insert(&self, pack: PackId, file: Arc<dyn BackingFile>) {
        self.recent.lock().insert(pack, file);
    }

    /// Closes the file of a pack that has been deleted.
    pub(super) fn remove(&self, pack: PackId) {
        let mut recent = self.recent.lock();
        recent.files.remove(&pack);
        recent.deleted += 1;
    }

    #[cfg(test)]
    pub(super) fn has(&self, pack: PackId) -> bool {
        self.recent.lock().get(pack).is_some()
    }
}

impl Recent {
    fn get(&mut self, pack: PackId) -> Option<Arc<dyn BackingFile>> {
        self.clock += 1;
        let (file, used) = self.files.get_mut(&pack)?;
        *used = self.clock;
        Some(Arc::clone(file))
    }

    fn insert(&mut self, pack: PackId, file: Arc<dyn BackingFile>) {
        if self.files.len() >= MAX_OPEN
            && let Some(oldest) = self.files.iter().min_by_key(|(_, (_, used))| *used)
        {
            let oldest = *oldest.0;
            self.files.remove(&oldest);
        }
        self.clock += 1;
        self.files.insert(pack, (file, self.clock));
    }
}
