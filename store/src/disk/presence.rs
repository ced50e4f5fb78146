//! Whether the directory of a store still exists. The store holds it open: it keeps working when the
//! directory is moved, and would write into deleted files when it is removed.

use std::path::Path;
use std::time::{Duration, Instant};

use shale_backing::{Backing, StoreLocation};
use shale_index::extent::PACKS_DIR;

use super::INDEX_DIR;
use super::superblock;
use crate::primitives::Mutex;
use crate::primitives::atomic::{AtomicBool, Ordering};

/// Time between two checks whether the store was moved.
const LOOK: Duration = Duration::from_secs(5);

/// The essential parts of a store.
const PARTS: [&str; 3] = [superblock::FILE, PACKS_DIR, INDEX_DIR];

/// The state of the directory of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It is in its place, or was moved.
    There(StoreLocation),
    /// It was removed, or an essential part of it.
    Removed,
}

/// The result of the last checks of the directory.
#[derive(Debug)]
pub(crate) struct PresenceMonitor {
    /// Parts that existed when the store was opened and must stay.
    parts: Vec<&'static Path>,
    removed: AtomicBool,
    moved: Mutex<Moved>,
}

impl PresenceMonitor {
    pub(crate) fn new(backing: &dyn Backing) -> Self {
        let parts = PARTS.into_iter().map(Path::new);
        Self {
            parts: parts.filter(|part| !backing.is_missing(part)).collect(),
            removed: AtomicBool::new(false),
            moved: Mutex::default(),
        }
    }
}

#[derive(Debug, Default)]
struct Moved {
    looked: Option<Instant>,
    told: bool,
}

impl PresenceMonitor {
    /// The state of the directory now.
    pub(crate) fn look(&self, backing: &dyn Backing) -> Presence {
        if self.is_removed() || self.has_lost_a_part(backing) {
            return Presence::Removed;
        }
        Presence::There(backing.location())
    }

    /// Whether a check has found the store removed.
    pub(crate) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::SeqCst)
    }

    fn has_lost_a_part(&self, backing: &dyn Backing) -> bool {
        self.parts.iter().any(|part| backing.is_missing(part))
    }

    /// Checks whether the store was removed; returns true when that is found for the first time.
    pub(crate) fn notice_removal(&self, backing: &dyn Backing) -> bool {
        if self.is_removed() || !self.has_lost_a_part(backing) {
            return false;
        }
        self.removed.store(true, Ordering::SeqCst);
        tracing::error!(
            "{}: the store, or an essential part of it, has been removed; changes fail with EIO \
             from now on. Copy what can still be read out of the mount, then unmount it",
            backing.root().display()
        );
        true
    }

    /// Checks now and then whether the store was moved, and logs that once.
    pub(crate) fn notice_move(&self, backing: &dyn Backing) {
        let mut moved = self.moved.lock();
        let now = Instant::now();
        if moved.looked.is_some_and(|last| now - last < LOOK) || self.is_removed() {
            return;
        }
        moved.looked = Some(now);
        let (root, place) = (backing.root().display(), backing.location());
        let told = std::mem::replace(&mut moved.told, place != StoreLocation::AsFound);
        let what = match place {
            StoreLocation::AsFound if told => {
                tracing::warn!("{root}: the store is back in its old place");
                return;
            }
            StoreLocation::AsFound => return,
            _ if told => return,
            StoreLocation::At(path) => format!("was moved to {}", path.display()),
            StoreLocation::OutOfSight => {
                "is out of sight: its file system was unmounted or covered by another".to_owned()
            }
        };
        tracing::warn!(
            "{root}: the store {what}; the mount keeps working, but unmount it before you mount \
             anything from the old place"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use shale_index::ROOT;

    use super::*;
    use crate::tests::{node, options};
    use crate::{Error, Store};

    #[test]
    fn a_store_that_is_removed_takes_no_changes_and_can_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        std::fs::create_dir(&path).unwrap();
        let store = Store::open(&path, &options()).unwrap();
        let inode = store.namespace().create(ROOT, b"f", &node()).unwrap();
        let file = store.file(inode.ino).unwrap();
        store.write(&file, 0, b"contents").unwrap();
        store.sync(&file).unwrap();
        assert_eq!(store.presence(), Presence::There(StoreLocation::AsFound));

        std::fs::rename(&path, dir.path().join("moved")).unwrap();
        let moved = StoreLocation::At(dir.path().canonicalize().unwrap().join("moved"));
        assert_eq!(store.presence(), Presence::There(moved));
        store.write(&file, 0, b"Contents").unwrap();
        store.sync(&file).unwrap();

        std::fs::remove_file(dir.path().join("moved/superblock")).unwrap();
        assert_eq!(store.presence(), Presence::Removed);
        let refused = [
            store.sync(&file).map(drop),
            store.sync_metadata(),
            store.write(&file, 0, b"x"),
            store.truncate(&file, 1),
        ]
        .map(Result::unwrap_err);
        for error in refused {
            assert!(matches!(error, Error::Removed { .. }), "{error}");
        }
        let refused = store.namespace().create(ROOT, b"g", &node()).unwrap_err();
        assert!(matches!(refused, shale_index::Error::Fenced(_)));
        let mut bytes = Vec::new();
        store.read(&file, 0, 100, &mut bytes).unwrap();
        assert_eq!(bytes, b"Contents");
        store.close(Arc::clone(&file));
        assert!(matches!(store.shut_down(), Err(Error::Removed { .. })));
    }
}
