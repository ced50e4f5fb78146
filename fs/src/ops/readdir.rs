//! Listing directories.

use shale_index::DirEntry;
use shale_index::schema::{S_IFDIR, S_IFMT};

use crate::{Attr, Error, Fs};

/// Cookies after `.` and `..`; those of entries are larger.
const AFTER_SELF: u64 = 1;
const AFTER_PARENT: u64 = 2;
/// Entries fetched from the index at a time.
const PAGE: usize = 256;

impl Fs {
    /// Hands the entries after a cookie to `take`, until that answers `false` or there are no
    /// more.
    ///
    /// # Errors
    /// When the store fails.
    pub fn readdir(
        &self,
        dir: u64,
        cookie: u64,
        mut take: impl FnMut(&DirEntry) -> bool,
    ) -> Result<(), Error> {
        let dot = |name: &[u8], ino, cookie| DirEntry {
            name: name.to_vec(),
            ino,
            kind: S_IFDIR & S_IFMT,
            cookie,
        };
        if cookie < AFTER_SELF && !take(&dot(b".", dir, AFTER_SELF)) {
            return Ok(());
        }
        if cookie < AFTER_PARENT {
            let parent = self.inode(dir)?.parent;
            if !take(&dot(b"..", parent, AFTER_PARENT)) {
                return Ok(());
            }
        }
        let mut cookie = if cookie <= AFTER_PARENT { 0 } else { cookie };
        loop {
            let page = self.store.readdir(dir, cookie, PAGE)?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            cookie = last.cookie;
            for entry in page {
                if !take(&entry) {
                    return Ok(());
                }
            }
        }
    }

    /// The attributes of a listed entry; `None` when it was removed meanwhile.
    ///
    /// # Errors
    /// When the store fails.
    pub fn entry_attr(&self, entry: &DirEntry) -> Result<Option<Attr>, Error> {
        match self.getattr(entry.ino) {
            Ok(attr) => Ok(Some(attr)),
            Err(e) if e.is_missing() => Ok(None),
            Err(e) => Err(e),
        }
    }
}
