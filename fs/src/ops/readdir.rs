//! Listing directories.

use shale_index::schema::{S_IFDIR, S_IFMT};
use shale_index::{DirEntry, Ino};

use crate::{Attr, Error, Fs};

/// Cookies after `.` and `..`; those of entries are larger.
const AFTER_SELF: u64 = 1;
const AFTER_PARENT: u64 = 2;
/// Entries fetched from the index at a time.
const PAGE: usize = 2 * ATTR_PAGE;
/// Entries whose attributes are fetched at a time.
const ATTR_PAGE: usize = 126;

impl Fs {
    /// Passes the entries after a cookie to `take`, until it returns `false` or there are no
    /// more.
    ///
    /// # Errors
    /// When the store fails.
    pub fn readdir(
        &self,
        dir: Ino,
        cookie: u64,
        mut take: impl FnMut(&DirEntry) -> bool,
    ) -> Result<(), Error> {
        self.list(dir, cookie, |page| Ok(page.iter().all(&mut take)))
    }

    /// The same with the attributes of each entry. Those that are removed meanwhile are left out.
    ///
    /// # Errors
    /// When the store fails.
    pub fn readdir_plus(
        &self,
        dir: Ino,
        cookie: u64,
        mut take: impl FnMut(&DirEntry, &Attr) -> bool,
    ) -> Result<(), Error> {
        self.list(dir, cookie, |page| {
            for page in page.chunks(ATTR_PAGE) {
                let inodes = self.store.stat_listed(page)?;
                for (entry, inode) in page.iter().zip(inodes) {
                    if let Some(inode) = inode
                        && !take(entry, &inode.into())
                    {
                        return Ok(false);
                    }
                }
            }
            Ok(true)
        })
    }

    /// Passes the entries after a cookie to `take`, page by page.
    fn list(
        &self,
        dir: Ino,
        cookie: u64,
        mut take: impl FnMut(&[DirEntry]) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let dot = |name: &[u8], ino, cookie| DirEntry {
            name: name.to_vec(),
            ino,
            kind: S_IFDIR & S_IFMT,
            cookie,
        };
        let mut first = Vec::new();
        if cookie < AFTER_SELF {
            first.push(dot(b".", dir, AFTER_SELF));
        }
        if cookie < AFTER_PARENT {
            let parent = self.inode(dir)?.parent;
            first.push(dot(b"..", parent, AFTER_PARENT));
        }
        let mut cookie = if cookie <= AFTER_PARENT { 0 } else { cookie };
        loop {
            let page = self.store.readdir(dir, cookie, PAGE)?;
            let last = page.last().map(|entry| entry.cookie);
            let more = page.len() >= PAGE;
            first.extend(page);
            if !first.is_empty() && !take(&first)? {
                return Ok(());
            }
            first.clear();
            match last {
                Some(last) if more => cookie = last,
                _ => return Ok(()),
            }
        }
    }
}
