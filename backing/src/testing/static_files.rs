//! A read-only store in memory, for tests that read hostile bytes by the thousand.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::backing::{Access, Backing, BackingEntry, BackingFile, Space};

/// Files by path.
#[derive(Clone, Debug, Default)]
pub struct StaticFiles {
    files: BTreeMap<PathBuf, StaticFile>,
}

/// A file of fixed bytes.
#[derive(Clone, Debug)]
pub struct StaticFile(Arc<[u8]>);

impl StaticFiles {
    /// Adds a file.
    #[must_use]
    pub fn with(mut self, path: impl Into<PathBuf>, bytes: &[u8]) -> Self {
        self.files.insert(path.into(), StaticFile::new(bytes));
        self
    }
}

impl StaticFile {
    /// A file of these bytes.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }
}

fn read_only<T>() -> io::Result<T> {
    Err(io::ErrorKind::ReadOnlyFilesystem.into())
}

impl Backing for StaticFiles {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn BackingFile>> {
        match self.files.get(path) {
            Some(file) if access == Access::Read => Ok(Arc::new(file.clone())),
            Some(_) => read_only(),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn rename(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        read_only()
    }

    fn remove_file(&self, _path: &Path) -> io::Result<()> {
        read_only()
    }

    fn remove_dir(&self, _path: &Path) -> io::Result<()> {
        read_only()
    }

    fn remove_dir_all(&self, _path: &Path) -> io::Result<()> {
        read_only()
    }

    fn create_dir_all(&self, _path: &Path) -> io::Result<()> {
        read_only()
    }

    fn list(&self, path: &Path) -> io::Result<Vec<BackingEntry>> {
        let inside = self
            .files
            .iter()
            .filter(|(file, _)| file.parent() == Some(path));
        let entry = |(file, bytes): (&PathBuf, &StaticFile)| {
            Some(BackingEntry {
                name: file.file_name()?.into(),
                is_dir: false,
                len: bytes.0.len() as u64,
            })
        };
        Ok(inside.filter_map(entry).collect())
    }

    fn sync_dir(&self, _path: &Path) -> io::Result<()> {
        read_only()
    }

    fn space(&self) -> io::Result<Space> {
        Ok(Space {
            total: 0,
            free: 0,
            available: 0,
            inodes: 0,
            inodes_free: 0,
        })
    }

    fn root(&self) -> &Path {
        Path::new("/still")
    }
}

impl BackingFile for StaticFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let from = usize::try_from(offset).map_or(self.0.len(), |at| at.min(self.0.len()));
        let len = buf.len().min(self.0.len() - from);
        buf[..len].copy_from_slice(&self.0[from..from + len]);
        Ok(len)
    }

    fn write_all_at(&self, _bytes: &[u8], _offset: u64) -> io::Result<()> {
        read_only()
    }

    fn sync_data(&self) -> io::Result<()> {
        read_only()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn set_len(&self, _len: u64) -> io::Result<()> {
        read_only()
    }

    fn reserve(&self, _len: u64) -> io::Result<bool> {
        read_only()
    }
}
