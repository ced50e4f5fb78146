//! A store in a directory.

use std::fs::{File, OpenOptions};
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{
    Advice, FallocateFlags, Mode, OFlags, fadvise, fallocate, open, statfs, statvfs, syncfs,
};
use rustix::io::Errno;

use crate::backing::{Access, Backing, BackingEntry, BackingFile, Space, StoreLocation};
use crate::device::lustre::Striping;
use crate::device::mapped::{Durable, MappedFile};
use crate::device::writeout;
use crate::retry::{read_full_at, retry_eintr, retry_removal};

/// Files of a store belong to the daemon's user alone.
const FILE_MODE: u32 = 0o600;
const DIR_MODE: u32 = 0o700;

/// File systems whose free space lags behind writes until a transaction ends: btrfs and ZFS.
const LAGGING: [i64; 2] = [0x9123_683E, 0x2FC1_2FC1];

/// On most devices, Linux reads no more than this for one read-ahead request.
const READ_AHEAD: u64 = 128 << 10;

/// The special treatment of packs on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PackFiles {
    /// Nothing.
    Plain,
    /// They are written through mappings.
    Mapped(Durable),
    /// Their directories are striped.
    Striped(Striping),
}

/// A store in a POSIX directory.
#[derive(Debug)]
pub struct PosixBacking {
    root: PathBuf,
    anchor: Option<Anchor>,
    packs: PackFiles,
}

/// The directory itself, independent of its path. After a lazy unmount the path may lead to
/// another file system that has nothing to do with the store.
#[derive(Debug)]
struct Anchor {
    path: PathBuf,
    _directory: OwnedFd,
}

impl Anchor {
    /// `None` where the directory or `/proc` is missing; the first use of the store shows why.
    fn hold(root: &Path) -> Option<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = open(root, flags, Mode::empty()).ok()?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
        path.is_dir().then_some(Self {
            path,
            _directory: directory,
        })
    }
}

impl PosixBacking {
    /// Uses an existing directory.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self::with(root, PackFiles::Plain)
    }

    pub(crate) fn with(root: impl Into<PathBuf>, packs: PackFiles) -> Self {
        let root = root.into();
        Self {
            anchor: Anchor::hold(&root),
            root,
            packs,
        }
    }

    /// Opens or creates a file of the operating system.
    pub(crate) fn open_file(&self, path: &Path, access: Access) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).mode(FILE_MODE);
        match access {
            Access::Read => {}
            Access::Write => {
                options.write(true);
            }
            Access::CreateNew | Access::CreatePack => {
                options.write(true).create_new(true);
            }
        }
        options.open(self.resolve(path)?)
    }

    /// Refuses a path that would leave the store.
    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        if path
            .components()
            .all(|c| matches!(c, Component::Normal(_) | Component::CurDir))
        {
            Ok(self.anchor().join(path))
        } else {
            Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{} is not inside the store", path.display()),
            ))
        }
    }
}

impl Backing for PosixBacking {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn BackingFile>> {
        let file = self.open_file(path, access)?;
        if let PackFiles::Mapped(durable) = self.packs
            && access == Access::CreatePack
        {
            return Ok(Arc::new(MappedFile::new(file, durable)));
        }
        Ok(Arc::new(PosixFile { file }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (self.resolve(from)?, self.resolve(to)?);
        retry_removal(|| std::fs::rename(&from, &to))
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let path = self.resolve(path)?;
        retry_removal(|| std::fs::remove_file(&path))
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let path = self.resolve(path)?;
        retry_removal(|| std::fs::remove_dir(&path))
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        let path = self.resolve(path)?;
        match retry_eintr(|| std::fs::remove_dir_all(&path)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let full = self.resolve(path)?;
        let exists = full.is_dir();
        retry_eintr(|| {
            std::fs::DirBuilder::new()
                .recursive(true)
                .mode(DIR_MODE)
                .create(&full)
        })?;
        if let PackFiles::Striped(striping) = self.packs
            && !exists
            && path.starts_with("packs")
        {
            // `lfs` is another process, for which the anchor means nothing.
            striping.apply(&self.root.join(path));
        }
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<BackingEntry>> {
        let path = self.resolve(path)?;
        retry_eintr(|| list(&path))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(self.resolve(path)?)?.sync_all()
    }

    fn space(&self) -> io::Result<Space> {
        let stat = retry_eintr(|| Ok(statvfs(self.anchor())?))?;
        let unit = stat.f_frsize;
        Ok(Space {
            total: stat.f_blocks * unit,
            free: stat.f_bfree * unit,
            available: stat.f_bavail * unit,
            inodes: stat.f_files,
            inodes_free: stat.f_ffree,
        })
    }

    fn space_lags(&self) -> bool {
        retry_eintr(|| Ok(statfs(self.anchor())?)).is_ok_and(|stat| LAGGING.contains(&stat.f_type))
    }

    fn sync_space(&self) -> io::Result<()> {
        let directory = retry_eintr(|| File::open(self.anchor()))?;
        retry_eintr(|| Ok(syncfs(&directory)?))
    }

    fn is_missing(&self, path: &Path) -> bool {
        let Ok(path) = self.resolve(path) else {
            return false;
        };
        let looked = retry_eintr(|| std::fs::symlink_metadata(&path));
        looked.is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
    }

    fn location(&self) -> StoreLocation {
        let identity = |path: &Path| {
            let metadata = retry_eintr(|| std::fs::metadata(path)).ok()?;
            Some((metadata.dev(), metadata.ino()))
        };
        let held = identity(self.anchor());
        if held.is_none() || identity(&self.root) == held {
            return StoreLocation::AsFound;
        }
        match std::fs::read_link(self.anchor()) {
            Ok(path) if identity(&path) == held => StoreLocation::At(path),
            _ => StoreLocation::OutOfSight,
        }
    }

    fn pack_unit(&self) -> u64 {
        match self.packs {
            PackFiles::Striped(striping) => striping.pack_unit(),
            PackFiles::Plain | PackFiles::Mapped(_) => 1,
        }
    }

    fn root(&self) -> &Path {
        &self.root
    }

    fn anchor(&self) -> &Path {
        self.anchor
            .as_ref()
            .map_or(&self.root, |anchor| &anchor.path)
    }
}

fn list(path: &Path) -> io::Result<Vec<BackingEntry>> {
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let metadata = match entry.metadata() {
            Ok(metadata) => metadata,
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => return Err(e),
        };
        entries.push(BackingEntry {
            name: entry.file_name().into(),
            is_dir: metadata.is_dir(),
            len: if metadata.is_dir() { 0 } else { metadata.len() },
        });
    }
    Ok(entries)
}

#[derive(Debug)]
struct PosixFile {
    file: File,
}

impl BackingFile for PosixFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        read_full_at(&self.file, buf, offset)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_all_at(buf, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn write_out(&self, offset: u64, len: u64) {
        writeout::begin(&self.file, offset, len);
    }

    fn will_need(&self, offset: u64, len: u64) {
        let end = offset.saturating_add(len);
        let mut at = offset;
        while at < end {
            let piece = (end - at).min(READ_AHEAD);
            let length = NonZeroU64::new(piece);
            if fadvise(&self.file, at, length, Advice::WillNeed).is_err() {
                return;
            }
            at += piece;
        }
    }

    fn len(&self) -> io::Result<u64> {
        Ok(retry_eintr(|| self.file.metadata())?.len())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn reserve(&self, len: u64) -> io::Result<bool> {
        libc::off_t::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
        retry_eintr(
            || match fallocate(&self.file, FallocateFlags::KEEP_SIZE, 0, len) {
                Ok(()) => Ok(true),
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
                Err(e) => Err(e.into()),
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_leave_the_store_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let backing = PosixBacking::new(dir.path());
        for path in ["../x", "/etc/passwd", "a/../../x"] {
            let error = backing.open(Path::new(path), Access::Read).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{path}");
        }
    }

    #[test]
    fn the_store_is_the_directory_and_not_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let (here, there) = (dir.path().join("here"), dir.path().join("there"));
        std::fs::create_dir(&here).unwrap();
        let backing = PosixBacking::new(&here);
        std::fs::rename(&here, &there).unwrap();
        backing.create_dir_all(Path::new("packs/s1")).unwrap();
        backing
            .open(Path::new("packs/s1/p"), Access::CreateNew)
            .unwrap();
        backing.sync_dir(Path::new("packs")).unwrap();
        assert!(there.join("packs/s1/p").exists());
        assert!(!here.exists());
        assert_eq!(backing.root(), here);
    }

    #[test]
    fn it_is_known_what_has_become_of_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        let (here, there) = (top.join("here"), top.join("there"));
        std::fs::create_dir(&here).unwrap();
        std::fs::write(here.join("part"), "x").unwrap();
        let backing = PosixBacking::new(&here);
        let part = Path::new("part");
        assert_eq!(backing.location(), StoreLocation::AsFound);
        assert!(!backing.is_missing(part) && backing.is_missing(Path::new("no")));
        std::fs::rename(&here, &there).unwrap();
        assert_eq!(backing.location(), StoreLocation::At(there.clone()));
        assert!(!backing.is_missing(part));
        std::fs::create_dir(&here).unwrap();
        assert_eq!(backing.location(), StoreLocation::At(there.clone()));
        std::fs::remove_dir_all(&there).unwrap();
        assert_eq!(backing.location(), StoreLocation::OutOfSight);
        assert!(backing.is_missing(part));
    }

    #[test]
    fn files_and_directories_are_private_to_the_daemon() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let backing = PosixBacking::new(dir.path());
        backing.create_dir_all(Path::new("packs/s1")).unwrap();
        backing
            .open(Path::new("packs/s1/p"), Access::CreateNew)
            .unwrap();
        let mode = |p: &str| {
            std::fs::metadata(dir.path().join(p))
                .unwrap()
                .permissions()
                .mode()
        };
        assert_eq!(mode("packs/s1/p") & 0o777, 0o600);
        assert_eq!(mode("packs/s1") & 0o777, 0o700);
    }

    #[test]
    fn reserved_space_does_not_change_the_length() {
        let dir = tempfile::tempdir().unwrap();
        let backing = PosixBacking::new(dir.path());
        let file = backing.open(Path::new("f"), Access::CreateNew).unwrap();
        file.write_all_at(b"abc", 0).unwrap();
        file.reserve(1 << 20).unwrap();
        assert_eq!(file.len().unwrap(), 3);
        let mut buf = [0; 8];
        assert_eq!(file.read_at(&mut buf, 1).unwrap(), 2);
    }
}
