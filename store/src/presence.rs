//! Whether the directory of a store is still there. The store holds it open, so that it goes on
//! when the directory is moved, and would go on writing into the void when it is removed.

use std::path::Path;
use std::time::{Duration, Instant};

use shale_backing::{Backing, Place};

use crate::store::{INDEX_DIR, Inner};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::{Error, Store, pack, superblock};

/// How often it is looked whether the store was moved.
const LOOK: Duration = Duration::from_secs(5);

/// Without these there is no store.
const PARTS: [&str; 3] = [superblock::FILE, pack::DIR, INDEX_DIR];

/// What has become of the directory of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It is where it was found, or was moved.
    There(Place),
    /// It was removed, or a part of it that no store can do without.
    Removed,
}

/// What has been noticed.
#[derive(Debug)]
pub(crate) struct Noticed {
    /// What was there when the store was opened and has to stay.
    parts: Vec<&'static Path>,
    removed: AtomicBool,
    moved: Mutex<Moved>,
}

impl Noticed {
    pub(crate) fn new(backing: &dyn Backing) -> Self {
        let parts = PARTS.into_iter().map(Path::new);
        Self {
            parts: parts.filter(|part| !backing.has_lost(part)).collect(),
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

impl Store {
    /// Looks what has become of the directory of the store.
    #[must_use]
    pub fn presence(&self) -> Presence {
        if self.inner.is_removed() || self.inner.has_lost_a_part() {
            return Presence::Removed;
        }
        Presence::There(self.inner.backing.place())
    }
}

impl Inner {
    /// Whether it has been noticed that the store was removed.
    pub(crate) fn is_removed(&self) -> bool {
        self.presence.removed.load(Ordering::SeqCst)
    }

    fn has_lost_a_part(&self) -> bool {
        let mut parts = self.presence.parts.iter();
        parts.any(|part| self.backing.has_lost(part))
    }

    /// Refuses what cannot become durable any more.
    pub(crate) fn check_there(&self) -> Result<(), Error> {
        if self.is_removed() {
            return Err(Error::Removed {
                path: self.backing.root().to_owned(),
            });
        }
        Ok(())
    }

    /// Looks whether the store was removed. What was read or is in memory can be read on; nothing
    /// can be changed.
    pub(crate) fn notice_removal(&self) {
        if self.is_removed() || !self.has_lost_a_part() {
            return;
        }
        self.presence.removed.store(true, Ordering::SeqCst);
        tracing::error!(
            "{}: the store, or a part of it that it cannot do without, has been removed; changes \
             answer EIO from now on. Copy out of the mount what can still be read, then unmount it",
            self.backing.root().display()
        );
        self.namespace.fence("the store has been removed");
        self.space.tell();
        self.budget.stall(libc::EIO);
        self.wake_all();
    }

    /// Looks now and then whether the store was moved, and tells once.
    pub(crate) fn notice_move(&self) {
        let mut moved = self.presence.moved.lock();
        let now = Instant::now();
        if moved.looked.is_some_and(|last| now - last < LOOK) || self.is_removed() {
            return;
        }
        moved.looked = Some(now);
        let (root, place) = (self.backing.root().display(), self.backing.place());
        let told = std::mem::replace(&mut moved.told, place != Place::AsFound);
        let what = match place {
            Place::AsFound if told => {
                tracing::warn!("{root}: the store is where it was found again");
                return;
            }
            Place::AsFound => return,
            _ if told => return,
            Place::At(path) => format!("was moved to {}", path.display()),
            Place::OutOfSight => {
                "is out of sight: its file system was unmounted or covered by another".to_owned()
            }
        };
        tracing::warn!(
            "{root}: the store {what}; the mount goes on with it, but unmount it before anything \
             is mounted from its old place"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use shale_index::ROOT;

    use super::*;
    use crate::tests::{node, options};

    #[test]
    fn a_store_that_is_removed_takes_no_changes_and_can_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        std::fs::create_dir(&path).unwrap();
        let store = Store::open(&path, &options()).unwrap();
        let inode = store.namespace().create(ROOT, b"f", &node()).unwrap().0;
        let file = store.file(inode.ino).unwrap();
        store.write(&file, 0, b"contents").unwrap();
        store.sync(&file).unwrap();
        assert_eq!(store.presence(), Presence::There(Place::AsFound));

        std::fs::rename(&path, dir.path().join("moved")).unwrap();
        let moved = Place::At(dir.path().canonicalize().unwrap().join("moved"));
        assert_eq!(store.presence(), Presence::There(moved));
        store.write(&file, 0, b"Contents").unwrap();
        store.sync(&file).unwrap();

        std::fs::remove_file(dir.path().join("moved/superblock")).unwrap();
        assert_eq!(store.presence(), Presence::Removed);
        let errnos = [
            store.sync(&file).map(drop),
            store.sync_metadata(),
            store.write(&file, 0, b"x"),
            store.truncate(&file, 1),
        ]
        .map(|refused| refused.unwrap_err().errno());
        assert_eq!(errnos, [libc::EIO; 4]);
        let refused = store.namespace().create(ROOT, b"g", &node()).unwrap_err();
        assert!(matches!(refused, shale_index::Error::Fenced(_)));
        let mut bytes = Vec::new();
        store.read(&file, 0, 100, &mut bytes).unwrap();
        assert_eq!(bytes, b"Contents");
        store.close(Arc::clone(&file));
        assert!(matches!(store.shut_down(), Err(Error::Removed { .. })));
    }
}
