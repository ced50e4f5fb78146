//! A store that refuses every change.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::backing::{Access, Backing, BackingEntry, BackingFile, Space, StoreLocation};

/// Wraps another backing and refuses every change with `EROFS`.
#[derive(Debug)]
pub struct ReadOnly(Arc<dyn Backing>);

#[derive(Debug)]
struct ReadOnlyFile(Arc<dyn BackingFile>);

impl ReadOnly {
    /// Wraps `backing`.
    #[must_use]
    pub fn new(backing: Arc<dyn Backing>) -> Self {
        Self(backing)
    }
}

fn refuse<T>() -> io::Result<T> {
    Err(io::Error::from_raw_os_error(libc::EROFS))
}

impl Backing for ReadOnly {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn BackingFile>> {
        match access {
            Access::Read => Ok(Arc::new(ReadOnlyFile(self.0.open(path, access)?))),
            Access::Write | Access::CreateNew | Access::CreatePack => refuse(),
        }
    }

    fn rename(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        refuse()
    }

    fn remove_file(&self, _path: &Path) -> io::Result<()> {
        refuse()
    }

    fn remove_dir(&self, _path: &Path) -> io::Result<()> {
        refuse()
    }

    fn remove_dir_all(&self, _path: &Path) -> io::Result<()> {
        refuse()
    }

    fn create_dir_all(&self, _path: &Path) -> io::Result<()> {
        refuse()
    }

    fn list(&self, path: &Path) -> io::Result<Vec<BackingEntry>> {
        self.0.list(path)
    }

    fn sync_dir(&self, _path: &Path) -> io::Result<()> {
        refuse()
    }

    fn space(&self) -> io::Result<Space> {
        self.0.space()
    }

    fn is_missing(&self, path: &Path) -> bool {
        self.0.is_missing(path)
    }

    fn location(&self) -> StoreLocation {
        self.0.location()
    }

    fn root(&self) -> &Path {
        self.0.root()
    }

    fn anchor(&self) -> &Path {
        self.0.anchor()
    }
}

impl BackingFile for ReadOnlyFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }

    fn write_all_at(&self, _buf: &[u8], _offset: u64) -> io::Result<()> {
        refuse()
    }

    fn sync_data(&self) -> io::Result<()> {
        refuse()
    }

    fn will_need(&self, offset: u64, len: u64) {
        self.0.will_need(offset, len);
    }

    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn set_len(&self, _len: u64) -> io::Result<()> {
        refuse()
    }

    fn reserve(&self, _len: u64) -> io::Result<bool> {
        refuse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::posix::PosixBacking;

    #[test]
    fn everything_can_be_read_and_nothing_changed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), b"bytes").unwrap();
        let backing = ReadOnly::new(Arc::new(PosixBacking::new(dir.path())));
        let path = Path::new("file");
        let file = backing.open(path, Access::Read).unwrap();
        let mut bytes = [0; 5];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!((&bytes, file.len().unwrap()), (b"bytes", 5));
        assert_eq!(backing.list(Path::new("")).unwrap().len(), 1);
        assert!(backing.space().unwrap().total > 0);
        let changes = [
            backing.open(path, Access::Write).map(drop),
            backing.open(Path::new("new"), Access::CreateNew).map(drop),
            backing.open(Path::new("new"), Access::CreatePack).map(drop),
            backing.rename(path, Path::new("new")),
            backing.remove_file(path),
            backing.remove_dir(path),
            backing.remove_dir_all(path),
            backing.create_dir_all(Path::new("new")),
            backing.sync_dir(Path::new("")),
            file.write_all_at(b"other", 0),
            file.sync_data(),
            file.seal(),
            file.set_len(0),
            file.reserve(9).map(drop),
        ];
        for change in changes {
            assert_eq!(change.unwrap_err().raw_os_error(), Some(libc::EROFS));
        }
        assert_eq!(std::fs::read(dir.path().join("file")).unwrap(), b"bytes");
    }
}
