//! The reserve: space that is allocated before it is promised.
//!
//! `write` returns before anything is stored, and the kernel's cache holds bytes that it has not
//! even sent. An empty file occupies as much of the device as all of them may need, so that nothing
//! else can take the space: no other mount, program or quota. Storing releases it piece by piece.

use std::io;
use std::path::Path;
use std::sync::Arc;

use shale_backing::{Access, Backing, BackingFile};

use crate::primitives::Mutex;
use crate::primitives::atomic::{AtomicBool, AtomicU64, Ordering};

/// Name of the file in a store.
pub(crate) const FILE: &str = "reserve";

/// A file that holds space.
#[derive(Debug)]
pub(crate) struct Reserve {
    backing: Arc<dyn Backing>,
    file: Mutex<Option<Arc<dyn BackingFile>>>,
    held: AtomicU64,
    /// The file system cannot preallocate.
    unable: AtomicBool,
}

impl Reserve {
    /// A reserve that holds nothing yet.
    pub(crate) fn new(backing: Arc<dyn Backing>) -> Self {
        // There, space that a file releases can be used only after a transaction has ended.
        let unable = backing.space_lags();
        Self {
            backing,
            file: Mutex::new(None),
            held: AtomicU64::new(0),
            unable: AtomicBool::new(unable),
        }
    }

    /// Removes the reserve of a session that died.
    pub(crate) fn clear(backing: &dyn Backing) {
        if let Err(e) = backing.remove_file(Path::new(FILE))
            && e.kind() != io::ErrorKind::NotFound
        {
            let path = backing.root().join(FILE);
            tracing::warn!(
                "{}: cannot remove the reserve of the last session, its space stays occupied: {e}; \
                 remove the file while the store is not mounted",
                path.display()
            );
        }
    }

    /// Bytes that it occupies.
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::SeqCst)
    }

    /// Whether the device can preallocate, as far as is known.
    pub(crate) fn is_able(&self) -> bool {
        !self.unable.load(Ordering::SeqCst)
    }

    /// Grows to `bytes`; returns whether the space is held now. Does nothing where it holds more.
    ///
    /// # Errors
    /// `ENOSPC`, `EDQUOT`, or what else the device says. What was held before still is.
    pub(crate) fn grow(&self, bytes: u64) -> io::Result<bool> {
        let mut file = self.file.lock();
        let held = self.held();
        if bytes <= held {
            return Ok(true);
        }
        let open = match &*file {
            Some(open) => Arc::clone(open),
            None => {
                let new = self.backing.open(Path::new(FILE), Access::CreateNew)?;
                *file = Some(Arc::clone(&new));
                new
            }
        };
        match open.reserve(bytes) {
            Ok(true) => open.set_len(bytes)?,
            Ok(false) => {
                self.unable.store(true, Ordering::SeqCst);
                *file = None;
                let _ = self.backing.remove_file(Path::new(FILE));
                return Ok(false);
            }
            Err(e) => {
                // Some of it may have been allocated.
                let _ = open.set_len(held);
                return Err(e);
            }
        }
        self.held.store(bytes, Ordering::SeqCst);
        Ok(true)
    }

    /// Shrinks to `bytes`; returns how many became free.
    pub(crate) fn shrink(&self, bytes: u64) -> u64 {
        let file = self.file.lock();
        let held = self.held();
        let Some(open) = file.as_ref().filter(|_| bytes < held) else {
            return 0;
        };
        if let Err(e) = open.set_len(bytes) {
            let path = self.backing.root().join(FILE);
            tracing::warn!(
                "{}: cannot shrink the reserve, its space stays occupied until the store is \
                 unmounted: {e}",
                path.display()
            );
            return 0;
        }
        self.held.store(bytes, Ordering::SeqCst);
        held - bytes
    }

    /// Releases everything.
    pub(crate) fn close(&self) {
        let mut file = self.file.lock();
        if file.take().is_some()
            && let Err(e) = self.backing.remove_file(Path::new(FILE))
        {
            let path = self.backing.root().join(FILE);
            tracing::warn!(
                "{}: cannot remove the reserve, the next mount tries again: {e}",
                path.display()
            );
        }
        self.held.store(0, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use shale_backing::PosixBacking;

    use super::*;

    #[test]
    fn it_occupies_what_it_holds_and_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let reserve = Reserve::new(Arc::new(PosixBacking::new(dir.path())));
        let path = dir.path().join(FILE);
        if !reserve.grow(8 << 20).unwrap() {
            assert!(!reserve.is_able() && !path.exists());
            return;
        }
        let occupied = || path.metadata().unwrap().blocks() * 512;
        assert!(occupied() >= 8 << 20);
        assert_eq!(reserve.shrink(2 << 20), 6 << 20);
        assert!(occupied() < 4 << 20);
        assert!(reserve.grow(1 << 20).unwrap());
        assert_eq!(reserve.held(), 2 << 20);
        reserve.close();
        assert!(!path.exists());
    }
}
