//! Detects persistent memory.

use std::io;
use std::path::Path;

use crate::backing::{Access, Backing};
use crate::device::mapped::{Durable, probe};
use crate::device::posix::PosixBacking;

/// The file that is mapped for the probe; only a crash can leave it behind.
pub const PROBE: &str = "shale.probe";

/// Whether writes become durable without the kernel's help.
pub(crate) fn is_direct(durable: Durable) -> bool {
    !matches!(durable, Durable::ByKernel { sync: false })
}

/// How files of a directory can be mapped.
pub(crate) fn probe_directory(root: &Path) -> io::Result<Durable> {
    let posix = PosixBacking::new(root);
    let path = Path::new(PROBE);
    // A crash may have left one behind.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::posix::PackFiles;

    #[test]
    fn only_packs_are_mapped_and_nothing_is_left_of_the_probe() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(PROBE), b"from a crash").unwrap();
        let durable = probe_directory(dir.path()).unwrap();
        let backing = PosixBacking::with(dir.path(), PackFiles::Mapped(durable));
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
