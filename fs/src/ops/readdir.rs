//! Directories.

use shale_store::index::schema::{S_IFDIR, S_IFMT};

use crate::{Attr, Error, Fs};

/// Cookies after `.` and `..`; those of entries are larger.
const AFTER_SELF: u64 = 1;
const AFTER_PARENT: u64 = 2;
/// Entries fetched from the index at a time.
const PAGE: usize = 256;

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The name.
    pub name: Vec<u8>,
    /// What it stands for.
    pub ino: u64,
    /// File type bits.
    pub kind: u32,
    /// Where to go on after this entry.
    pub cookie: u64,
}

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
        mut take: impl FnMut(&Listed) -> bool,
    ) -> Result<(), Error> {
        let dot = |name: &[u8], ino, cookie| Listed {
            name: name.to_vec(),
            ino,
            kind: S_IFDIR & S_IFMT,
            cookie,
        };
        if cookie < AFTER_SELF && !take(&dot(b".", dir, AFTER_SELF)) {
            return Ok(());
        }
        if cookie < AFTER_PARENT {
            let parent = self.namespace().inode(dir)?.parent;
            if !take(&dot(b"..", parent, AFTER_PARENT)) {
                return Ok(());
            }
        }
        let mut cookie = if cookie <= AFTER_PARENT { 0 } else { cookie };
        loop {
            let page = self.namespace().readdir(dir, cookie, PAGE)?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            cookie = last.cookie;
            for entry in page {
                let listed = Listed {
                    name: entry.name,
                    ino: entry.ino,
                    kind: entry.kind,
                    cookie: entry.cookie,
                };
                if !take(&listed) {
                    return Ok(());
                }
            }
        }
    }

    /// The attributes of a listed entry; `None` when it has gone meanwhile.
    ///
    /// # Errors
    /// When the store fails.
    pub fn listed_attr(&self, listed: &Listed) -> Result<Option<Attr>, Error> {
        match self.getattr(listed.ino) {
            Ok(attr) => Ok(Some(attr)),
            Err(e) if e.errno() == libc::ENOENT => Ok(None),
            Err(e) => Err(e),
        }
    }
}
