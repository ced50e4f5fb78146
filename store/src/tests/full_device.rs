//! A store on a device without room, or within a quota.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shale_backing::{
    Access, Backing, BackingEntry, BackingFile, DeviceOptions, Space, open_device,
};
use shale_index::{NewNode, ROOT};

use super::{Fixture, bytes, collected, node};
use crate::{Asked, Error, GcState};

/// A large device with little room left, or with a small quota.
#[derive(Debug)]
struct Crowded {
    inner: Arc<dyn Backing>,
    total: u64,
    room: u64,
    /// Its error when there is no room. A quota does not show in the free space.
    errno: i32,
    /// Space held in advance; none if that is impossible.
    held: Option<AtomicU64>,
}

impl Crowded {
    fn used(&self) -> io::Result<u64> {
        let packs = crate::pack::list(&*self.inner).map_err(io::Error::other)?;
        let held = self
            .held
            .as_ref()
            .map_or(0, |held| held.load(Ordering::SeqCst));
        Ok(packs.iter().map(|pack| pack.bytes).sum::<u64>() + held)
    }

    fn full(&self) -> io::Error {
        io::Error::from_raw_os_error(self.errno)
    }
}

/// The device as a backing; separate because files need the device itself.
#[derive(Debug)]
struct OnCrowded(Arc<Crowded>);

#[derive(Debug)]
struct CrowdedFile {
    is_reserve: bool,
    device: Arc<Crowded>,
    inner: Arc<dyn BackingFile>,
}

impl Backing for OnCrowded {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn BackingFile>> {
        Ok(Arc::new(CrowdedFile {
            is_reserve: path == Path::new(crate::disk::RESERVE_FILE),
            device: Arc::clone(&self.0),
            inner: self.0.inner.open(path, access)?,
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.inner.rename(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.0.inner.remove_file(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.0.inner.remove_dir(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.0.inner.remove_dir_all(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.0.inner.create_dir_all(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<BackingEntry>> {
        self.0.inner.list(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.0.inner.sync_dir(path)
    }

    fn space(&self) -> io::Result<Space> {
        let shown = if self.0.errno == libc::EDQUOT {
            self.0.total
        } else {
            self.0.room
        };
        let free = shown.saturating_sub(self.0.used()?);
        Ok(Space {
            total: self.0.total,
            free,
            available: free,
            inodes: 1,
            inodes_free: 1,
        })
    }

    fn root(&self) -> &Path {
        self.0.inner.root()
    }
}

impl BackingFile for CrowdedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.inner.read_at(buf, offset)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let grown = (offset + buf.len() as u64).saturating_sub(self.inner.len()?);
        if self.device.used()? + grown > self.device.room {
            return Err(self.device.full());
        }
        self.inner.write_all_at(buf, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.inner.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        if let Some(held) = self.device.held.as_ref().filter(|_| self.is_reserve) {
            held.store(len, Ordering::SeqCst);
            return Ok(());
        }
        self.inner.set_len(len)
    }

    fn reserve(&self, len: u64) -> io::Result<bool> {
        let Some(held) = self.device.held.as_ref().filter(|_| self.is_reserve) else {
            return Ok(false);
        };
        let more = len.saturating_sub(held.load(Ordering::SeqCst));
        if self.device.used()? + more > self.device.room {
            return Err(self.device.full());
        }
        held.fetch_add(more, Ordering::SeqCst);
        Ok(true)
    }
}

/// Half of every pack is live then, and must be copied before anything is freed.
#[test]
fn deleting_every_second_file_of_a_full_store_gives_the_space_back() {
    const MIB: u64 = 1 << 20;
    let dir = tempfile::tempdir().unwrap();
    let device = Arc::new(Crowded {
        inner: open_device(dir.path(), DeviceOptions::default()).unwrap(),
        total: 16 << 30,
        room: 300 * MIB,
        errno: libc::ENOSPC,
        held: None,
    });
    let shared = Arc::clone(&device);
    let fixture = Fixture::on(dir, move |_| Arc::new(OnCrowded(Arc::clone(&shared))));
    let store = fixture.store();
    let contents = bytes(MIB as usize, 1, true);
    let fill = |prefix: &str| {
        let mut files = Vec::new();
        loop {
            let name = format!("{prefix}{}", files.len());
            let large = NewNode {
                chunk_shift: 20,
                ..node()
            };
            let made = store.namespace().create(ROOT, name.as_bytes(), &large);
            let ino = made.unwrap().ino;
            let file = store.file(ino).unwrap();
            let written = store.write(&file, 0, &contents);
            store.close(file);
            match written {
                Ok(()) => files.push((name, ino)),
                Err(e) => {
                    assert!(matches!(e, Error::NoSpace), "{e}");
                    store.sync_all().unwrap();
                    return files;
                }
            }
        }
    };
    let files = fill("first");
    assert!(files.len() > 100, "room for {} files", files.len());
    let (gone, kept): (Vec<_>, Vec<_>) = files.iter().enumerate().partition(|(i, _)| i % 2 == 0);
    for (_, (name, ino)) in &gone {
        store.namespace().unlink(ROOT, name.as_bytes()).unwrap();
        store.release_orphan(*ino);
    }
    while !store.namespace().orphans().unwrap().0.is_empty() {
        store.sync_all().unwrap();
    }
    assert_eq!(collected(store), GcState::Idle);
    let (used, left) = (device.used().unwrap(), kept.len() as u64 * MIB);
    assert!(used < left + 2 * MIB, "{used} bytes for {left}");
    let again = fill("second");
    assert!(again.len() + 2 >= gone.len(), "room for {}", again.len());
    for (_, (_, ino)) in kept {
        let file = store.file(*ino).unwrap();
        let mut out = Vec::new();
        store.read(&file, 0, contents.len(), &mut out).unwrap();
        assert!(out == contents, "contents differ");
        store.close(file);
    }
}

/// A cache above accepts the granted amount, and asks first when room is short. Accepted data must
/// be stored, also within a quota that the free space does not show.
#[test]
fn what_a_cache_accepted_within_a_quota_is_stored() {
    const MIB: u64 = 1 << 20;
    const ABOVE: u64 = 8 * MIB;
    let dir = tempfile::tempdir().unwrap();
    let device = Arc::new(Crowded {
        inner: open_device(dir.path(), DeviceOptions::default()).unwrap(),
        total: 16 << 30,
        room: 300 * MIB,
        errno: libc::EDQUOT,
        held: Some(AtomicU64::new(0)),
    });
    let shared = Arc::clone(&device);
    let fixture = Fixture::on(dir, move |_| Arc::new(OnCrowded(Arc::clone(&shared))));
    let store = fixture.store();
    store.set_cached_above(ABOVE);
    let large = NewNode {
        chunk_shift: 20,
        ..node()
    };
    let ino = store
        .namespace()
        .create(ROOT, b"cached", &large)
        .unwrap()
        .ino;
    let file = store.file(ino).unwrap();
    let contents = bytes(ABOVE as usize, 1, true);
    let asked = Asked {
        thread: 1,
        bytes: ABOVE,
    };
    let mut len = 0;
    let refused = loop {
        // All of it is in the cache before any of it is sent.
        if store.is_short_of_room()
            && !store.covers_cached(&file, asked)
            && let Err(e) = store.admit_cached(&file, asked)
        {
            break e;
        }
        for piece in contents.chunks(MIB as usize) {
            store.write_back(&file, len, piece, false).unwrap();
            len += MIB;
        }
        assert!(len < 400 * MIB, "never full");
    };
    assert!(matches!(refused, Error::QuotaExceeded), "{refused}");
    assert!(len > 200 * MIB, "refused after {len}");
    store.sync(&file).unwrap();
    assert!(file.lost().is_empty());
    let mut out = Vec::new();
    for at in (0..len).step_by(ABOVE as usize) {
        store.read(&file, at, contents.len(), &mut out).unwrap();
        assert!(out == contents, "contents differ at {at}");
    }
    store.close(file);
}
