//! A store that is not mounted, read without FUSE and without changing it.

use std::cell::OnceCell;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use shale_index::ROOT;
use shale_index::schema::{S_IFLNK, S_IFMT};
use shale_store::{Error, OfflineStore};

use super::source::{Contents, Kind, Node, Source, is_own};
use crate::output::failure::{Failure, exit};

/// A file or directory in a store.
pub(crate) struct StoreSource {
    reader: OfflineStore,
    store: PathBuf,
    top: u64,
}

impl StoreSource {
    /// Opens a store. `only` is a path below its top, empty for everything.
    pub(crate) fn open(store: &Path, only: &Path) -> Result<Self, Failure> {
        let reader = OfflineStore::open(store).map_err(|error| Failure::opening(store, error))?;
        let mut stored = Self {
            reader,
            store: store.to_owned(),
            top: ROOT,
        };
        for name in only {
            stored.top = stored.enter(name.as_bytes(), only)?;
        }
        Ok(stored)
    }

    fn enter(&self, name: &[u8], only: &Path) -> Result<u64, Failure> {
        let entries = self.reader.entries(self.top);
        let entries = entries.map_err(|e| self.failed(self.top, &e))?;
        match entries.into_iter().find(|entry| entry.name == name) {
            Some(entry) => Ok(entry.ino),
            None => Err(Failure::new(
                exit::NO_INPUT,
                format_args!(
                    "the store {} has no {}; leave out --only to copy everything",
                    self.store.display(),
                    only.display()
                ),
            )),
        }
    }

    fn failed(&self, ino: u64, error: &Error) -> Failure {
        self.failed_at(&self.reader.path(ino), error)
    }

    fn failed_at(&self, path: &str, error: &Error) -> Failure {
        Failure::new(
            exit::IO,
            format_args!(
                "cannot read {path} of {}: {error}; 'shale fsck {}' lists everything that is damaged",
                self.store.display(),
                self.store.display()
            ),
        )
    }
}

impl Source for StoreSource {
    type Id = u64;

    fn top(&self) -> u64 {
        self.top
    }

    fn node(&self, &ino: &u64) -> Result<Node, Failure> {
        let failed = |e: Error| self.failed(ino, &e);
        let inode = self.reader.inode(ino).map_err(failed)?;
        let kind = if inode.is_file() {
            Kind::File
        } else if inode.is_dir() {
            Kind::Directory
        } else if inode.mode & S_IFMT == S_IFLNK {
            Kind::Symlink(OsString::from_vec(inode.target.clone()))
        } else {
            Kind::Special(inode.mode & S_IFMT, u64::from(inode.rdev))
        };
        let xattrs = self.reader.xattrs(ino).map_err(failed)?;
        let xattrs = xattrs
            .into_iter()
            .filter(|(name, _)| !is_own(name))
            .map(|(name, value)| (OsString::from_vec(name), value));
        Ok(Node {
            id: ino,
            kind,
            mode: inode.mode & !S_IFMT,
            owner: (inode.uid, inode.gid),
            accessed: (inode.atime.secs, inode.atime.nanos),
            modified: (inode.mtime.secs, inode.mtime.nanos),
            size: inode.size,
            links: u64::from(inode.nlink),
            xattrs: xattrs.collect(),
        })
    }

    fn entries(&self, &ino: &u64) -> Result<Vec<(OsString, u64)>, Failure> {
        let entries = self.reader.entries(ino);
        let mut entries: Vec<(OsString, u64)> = entries
            .map_err(|e| self.failed(ino, &e))?
            .into_iter()
            .map(|entry| (OsString::from_vec(entry.name), entry.ino))
            .collect();
        entries.sort();
        Ok(entries)
    }

    fn contents<'a>(&'a self, &ino: &u64) -> Result<Box<dyn Contents + 'a>, Failure> {
        let contents = self.reader.contents(ino);
        Ok(Box::new(Open {
            contents: contents.map_err(|e| self.failed(ino, &e))?,
            source: self,
            ino,
            path: OnceCell::new(),
        }))
    }

    fn place(&self) -> &Path {
        &self.store
    }
}

struct Open<'a> {
    contents: shale_store::Contents<'a>,
    source: &'a StoreSource,
    ino: u64,
    /// Looked up once, at the first error: salvaging may meet many.
    path: OnceCell<String>,
}

impl Open<'_> {
    fn failed(&self, error: &Error) -> Failure {
        let path = self.path.get_or_init(|| self.source.reader.path(self.ino));
        self.source.failed_at(path, error)
    }
}

impl Contents for Open<'_> {
    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize, Failure> {
        let read = self.contents.read(offset, buffer);
        read.map_err(|e| self.failed(&e))
    }

    fn next_data(&mut self, offset: u64) -> Result<Option<u64>, Failure> {
        let found = self.contents.next_data(offset);
        found.map_err(|e| self.failed(&e))
    }

    /// The lock on the store keeps it unchanged.
    fn has_changed(&self) -> Result<bool, Failure> {
        Ok(false)
    }
}
