//! A store on persistent memory.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::mapped::{Durable, MappedFile, probe};
use crate::{Access, Backing, BackingFile, Entry, PosixBacking, Space};

/// A store whose packs are written through mappings. Everything else is small and goes through
/// ordinary files.
#[derive(Debug)]
pub struct PmemBacking {
    posix: PosixBacking,
    durable: Durable,
}

/// The file that is mapped to find out how files can be; only a crash can leave it behind.
pub const PROBE: &str = "shale.probe";

impl PmemBacking {
    /// Uses an existing directory.
    ///
    /// # Errors
    /// When its files cannot be mapped, or no file can be made in it.
    pub fn new(root: &Path) -> io::Result<Self> {
        Ok(Self {
            posix: PosixBacking::new(root),
            durable: probe_directory(root)?,
        })
    }

    /// Whether packs become durable without the kernel's help.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        is_direct(self.durable)
    }
}

fn is_direct(durable: Durable) -> bool {
    !matches!(durable, Durable::ByKernel { sync: false })
}

fn probe_directory(root: &Path) -> io::Result<Durable> {
    let posix = PosixBacking::new(root);
    let path = Path::new(PROBE);
    // One that a crash has left behind is in the way.
    let _ = posix.remove_file(path);
    let file = posix.open_file(path, Access::CreateNew)?;
    let removed = posix.remove_file(path);
    let durable = probe(&file)?;
    removed.map(|()| durable)
}

/// Whether files in a directory are persistent memory when they are mapped (`MAP_SYNC`).
pub(crate) fn is_persistent_memory(root: &Path) -> bool {
    probe_directory(root).is_ok_and(is_direct)
}

impl Backing for PmemBacking {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn BackingFile>> {
        if access == Access::CreatePack {
            let file = self.posix.open_file(path, access)?;
            return Ok(Arc::new(MappedFile::new(file, self.durable)));
        }
        self.posix.open(path, access)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.posix.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.posix.remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.posix.remove_dir_all(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.posix.create_dir_all(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        self.posix.list(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.posix.sync_dir(path)
    }

    fn space(&self) -> io::Result<Space> {
        self.posix.space()
    }

    fn root(&self) -> &Path {
        self.posix.root()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_packs_are_mapped_and_nothing_is_left_of_the_probe() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(PROBE), b"from a crash").unwrap();
        let backing = PmemBacking::new(dir.path()).unwrap();
        assert_eq!(backing.list(Path::new("")).unwrap(), []);
        let pack = backing.open(Path::new("p"), Access::CreatePack).unwrap();
        let other = backing.open(Path::new("o"), Access::CreateNew).unwrap();
        for file in [&pack, &other] {
            file.write_all_at(b"abc", 0).unwrap();
        }
        let len = |name: &str| std::fs::metadata(dir.path().join(name)).unwrap().len();
        assert!(len("p") > 3);
        assert_eq!(len("o"), 3);
        pack.seal().unwrap();
        assert_eq!(len("p"), 3);
    }
}
