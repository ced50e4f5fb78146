//! A store that is not mounted, opened to read from it. Nothing in it is written, so it may be on a
//! read-only or a failing device. The whole index is read into memory.

use std::path::Path;
use std::sync::Arc;

use shale_backing::{Backing, PosixBacking, ReadOnly};
use shale_index::extent::Place;
use shale_index::schema::Inode;
use shale_index::{DirEntry, Ino, Namespace};

use crate::Error;
use crate::disk::{Format, SharedLock, Superblock};
use crate::file::Usage;
use crate::frame::Frames;
use crate::map::FileMap;
use crate::pack::Packs;
use crate::volume::read_index;

/// Decoded frames kept for reads of their neighbours.
const CACHE: u64 = 128 << 20;
/// Entries of a directory taken at a time.
const ENTRIES: usize = 4096;

/// Name and value of an extended attribute.
pub(crate) type Xattr = (Vec<u8>, Vec<u8>);

/// A store opened to read from it. It cannot be mounted meanwhile.
#[derive(Debug)]
pub struct OfflineStore {
    namespace: Namespace,
    frames: Frames,
    _lock: Option<SharedLock>,
}

/// The contents of a regular file in a [`OfflineStore`].
#[derive(Debug)]
pub struct Contents<'a> {
    frames: &'a Frames,
    map: FileMap,
    ino: Ino,
    size: u64,
}

impl OfflineStore {
    /// Opens a store.
    ///
    /// # Errors
    /// [`Error::Locked`] when it is mounted, [`Error::NotAStore`], or what the device says.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let backing: Arc<dyn Backing> = Arc::new(PosixBacking::new(path));
        let backing: Arc<dyn Backing> = Arc::new(ReadOnly::new(backing));
        Superblock::require(&*backing)?;
        let lock = SharedLock::take(path)?;
        let (superblock, engine, _) = read_index(&backing)?;
        // No session: a pack could not even be begun.
        let packs = Packs::open_to_read(backing, superblock.id)?;
        Ok(Self {
            namespace: Namespace::read_only(engine, superblock.format == Format::Old),
            frames: Frames::new(packs, CACHE),
            _lock: lock,
        })
    }

    /// An inode by number.
    ///
    /// # Errors
    /// `ENOENT`, or when its record is damaged.
    pub fn inode(&self, ino: Ino) -> Result<Inode, Error> {
        Ok(self.namespace.inode(ino)?)
    }

    /// Where an inode is, for messages.
    #[must_use]
    pub fn path(&self, ino: Ino) -> String {
        self.namespace.path(ino)
    }

    /// All entries of a directory.
    ///
    /// # Errors
    /// When a record is damaged.
    pub fn entries(&self, dir: Ino) -> Result<Vec<DirEntry>, Error> {
        let mut entries: Vec<DirEntry> = Vec::new();
        loop {
            let cookie = entries.last().map_or(0, |entry| entry.cookie);
            let more = self.namespace.readdir(dir, cookie, ENTRIES)?;
            if more.is_empty() {
                return Ok(entries);
            }
            entries.extend(more);
        }
    }

    /// The space of a file, or of everything below a directory.
    ///
    /// # Errors
    /// When a record is damaged.
    pub fn taken(&self, inode: &Inode) -> Result<Usage, Error> {
        Usage::stored(&self.namespace, inode)
    }

    /// All extended attributes of an inode, access control lists included.
    ///
    /// # Errors
    /// When a record is damaged.
    pub fn xattrs(&self, ino: Ino) -> Result<Vec<Xattr>, Error> {
        let mut found = Vec::new();
        for name in self.namespace.xattr_names(ino)? {
            if let Some(value) = self.namespace.xattr(ino, &name)? {
                found.push((name, value));
            }
        }
        Ok(found)
    }

    /// The contents of a regular file.
    ///
    /// # Errors
    /// `ENOENT`, `EINVAL` for anything but a regular file, or when its map is damaged.
    pub fn contents(&self, ino: Ino) -> Result<Contents<'_>, Error> {
        let contents = self.namespace.contents(ino)?;
        if !contents.inode.is_file() {
            return Err(Error::NotAFile { ino });
        }
        Ok(Contents {
            frames: &self.frames,
            map: FileMap::load(&self.frames, &contents)?,
            ino,
            size: contents.current().size,
        })
    }
}

impl Contents<'_> {
    /// Fills `out` from an offset on; returns fewer bytes only at the end of the file.
    ///
    /// # Errors
    /// [`Error::Damaged`], or what the device says.
    pub fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<usize, Error> {
        let end = self.size.min(offset.saturating_add(out.len() as u64));
        let Some(len) = end.checked_sub(offset).filter(|&len| len > 0) else {
            return Ok(0);
        };
        let out = &mut out[..len as usize];
        out.fill(0);
        for extent in self.map.range(self.frames, offset..end)? {
            if extent.place == Place::Hole {
                continue;
            }
            let at = (extent.offset - offset) as usize;
            let piece = &mut out[at..at + extent.len as usize];
            self.frames.copy_extent(&extent, self.ino, piece)?;
        }
        Ok(out.len())
    }

    /// The next byte that is not in a hole, at or after an offset.
    ///
    /// # Errors
    /// When the map of the file is damaged.
    pub fn next_data(&mut self, offset: u64) -> Result<Option<u64>, Error> {
        if offset >= self.size {
            return Ok(None);
        }
        let found = self.map.next_data(self.frames, offset..self.size)?;
        Ok(found.filter(|&at| at < self.size))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use shale_codec::Effort;
    use shale_index::{NewNode, ROOT, XattrMode};

    use super::*;
    use crate::{Store, StoreOptions};

    fn options() -> StoreOptions {
        StoreOptions {
            memory: 64 << 20,
            workers: 1,
            owner: (0, 0),
            effort: Effort::Fast,
            purpose: "under test".to_owned(),
            device: shale_backing::DeviceOptions::default(),
            kernel_cache: true,
        }
    }

    fn make(path: &Path) -> u64 {
        let store = Store::open(path, &options()).unwrap();
        let node = NewNode {
            mode: 0o100_640,
            uid: 1,
            gid: 2,
            rdev: 0,
            chunk_shift: 20,
            target: Vec::new(),
            xattrs: Vec::new(),
        };
        let inode = store.namespace().create(ROOT, b"file", &node).unwrap();
        let file = store.file(inode.ino).unwrap();
        store.write(&file, 0, b"begin").unwrap();
        store.write(&file, 5 << 20, b"end").unwrap();
        store.close(file);
        let namespace = store.namespace();
        namespace
            .set_xattr(inode.ino, b"user.a", b"b", XattrMode::Set)
            .unwrap();
        store.shut_down().unwrap();
        inode.ino
    }

    fn files(path: &Path) -> BTreeMap<std::path::PathBuf, Vec<u8>> {
        let mut found = BTreeMap::new();
        for entry in std::fs::read_dir(path).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                found.extend(files(&path));
            } else {
                found.insert(path.clone(), std::fs::read(&path).unwrap());
            }
        }
        found
    }

    #[test]
    fn everything_is_read_and_nothing_is_touched() {
        let dir = tempfile::tempdir().unwrap();
        let ino = make(dir.path());
        let before = files(dir.path());
        let reader = OfflineStore::open(dir.path()).unwrap();
        let entries = reader.entries(ROOT).unwrap();
        assert_eq!(entries.len(), 1);
        assert_eq!((&entries[0].name[..], entries[0].ino), (&b"file"[..], ino));
        assert_eq!(reader.inode(ino).unwrap().size, (5 << 20) + 3);
        let xattrs = reader.xattrs(ino).unwrap();
        assert_eq!(xattrs, [(b"user.a".to_vec(), b"b".to_vec())]);
        let mut contents = reader.contents(ino).unwrap();
        let mut bytes = vec![7; 10];
        assert_eq!(contents.read(0, &mut bytes).unwrap(), 10);
        assert_eq!(bytes, b"begin\0\0\0\0\0");
        assert_eq!(contents.read(5 << 20, &mut bytes).unwrap(), 3);
        assert_eq!(&bytes[..3], b"end");
        assert_eq!(contents.read(6 << 20, &mut bytes).unwrap(), 0);
        assert_eq!(contents.next_data(5).unwrap(), Some(5 << 20));
        assert_eq!(contents.next_data((5 << 20) + 3).unwrap(), None);
        drop(reader);
        assert_eq!(files(dir.path()), before);
    }

    #[test]
    fn a_store_in_use_is_refused_and_one_being_read_cannot_be_mounted() {
        let dir = tempfile::tempdir().unwrap();
        make(dir.path());
        let store = Store::open(dir.path(), &options()).unwrap();
        assert!(matches!(
            OfflineStore::open(dir.path()),
            Err(Error::Locked { .. })
        ));
        drop(store);
        let reader = OfflineStore::open(dir.path()).unwrap();
        let second = OfflineStore::open(dir.path()).unwrap();
        assert!(matches!(
            Store::open(dir.path(), &options()),
            Err(Error::Locked { .. })
        ));
        drop((reader, second));
        Store::open(dir.path(), &options()).unwrap();
    }

    #[test]
    fn an_ordinary_directory_is_no_store() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(
            OfflineStore::open(dir.path()),
            Err(Error::NotAStore { .. })
        ));
    }
}
