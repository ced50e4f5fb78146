//! Tests of a whole store that inspect packs, extents, pins and open files. That is why they are
//! modules of the crate.

/// Generates a test for each kind of device from functions that take one.
macro_rules! on_every_device {
    ($($test:ident),* $(,)?) => {
        on_every_device!(@ posix, Posix, $($test),*);
        on_every_device!(@ pmem, Pmem, $($test),*);
    };
    (@ $module:ident, $device:ident, $($test:ident),*) => {
        mod $module {
            use shale_backing::Device;

            $(
                #[test]
                fn $test() {
                    super::$test(Device::$device);
                }
            )*
        }
    };
}

mod faults;
mod files;
mod frames;
mod full_device;
mod gc;
mod golden;
mod model;
mod shared;
mod upgrade;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use shale_backing::faults::{FaultDisk, Step};
use shale_backing::{Backing, Device, DeviceOptions, open_device};
use shale_codec::Effort;
use shale_index::engine::ReferenceKv;
use shale_index::extent::{PackBytes, PackId};
use shale_index::schema::S_IFREG;
use shale_index::{Ino, NewNode, ROOT};

use crate::Error;
use crate::disk::Superblock;
use crate::frame::FrameEncoder;
use crate::gc::{Rewriter, StoreUpkeep};
use crate::settle::Sizes;
use crate::{File, GcState, Store, StoreOptions};

const LIMIT: usize = 64 << 10;

pub(crate) fn options() -> StoreOptions {
    StoreOptions {
        memory: 256 << 10,
        workers: 2,
        owner: (0, 0),
        effort: Effort::Fast,
        purpose: "test".to_owned(),
        device: DeviceOptions::default(),
        kernel_cache: true,
    }
}

/// A file to create.
pub(crate) fn node() -> NewNode {
    NewNode {
        mode: S_IFREG | 0o600,
        uid: 0,
        gid: 0,
        rdev: 0,
        target: Vec::new(),
        chunk_shift: 12,
        xattrs: Vec::new(),
    }
}

/// Opens the device in a directory.
type Opener = Box<dyn Fn(&Path) -> Arc<dyn Backing>>;

struct Fixture {
    dir: tempfile::TempDir,
    backing: Opener,
    kv: Arc<ReferenceKv>,
    store: Option<Store>,
    ino: Ino,
}

impl Fixture {
    fn new(device: Device) -> Self {
        // /dev/shm stands in for persistent memory where it exists.
        let memory = Path::new("/dev/shm");
        let dir = if device == Device::Pmem && memory.is_dir() {
            tempfile::tempdir_in(memory).unwrap()
        } else {
            tempfile::tempdir().unwrap()
        };
        let choice = DeviceOptions {
            device: Some(device),
            ..DeviceOptions::default()
        };
        Self::on(dir, move |path| open_device(path, choice).unwrap())
    }

    fn on(dir: tempfile::TempDir, backing: impl Fn(&Path) -> Arc<dyn Backing> + 'static) -> Self {
        std::fs::create_dir(dir.path().join("packs")).unwrap();
        let mut fixture = Self {
            dir,
            backing: Box::new(backing),
            kv: Arc::new(ReferenceKv::new()),
            store: None,
            ino: 0,
        };
        fixture.open();
        fixture.ino = fixture.create(b"f");
        fixture
    }

    fn create(&self, name: &[u8]) -> u64 {
        let namespace = self.store().namespace();
        namespace.create(ROOT, name, &node()).unwrap().ino
    }

    fn open(&mut self) {
        let backing = (self.backing)(self.dir.path());
        let superblock = Superblock {
            id: [1; 16],
            created: 0,
            format: crate::disk::Format::Current,
        };
        let store = Store::with_engine(backing, self.kv.clone(), superblock, &options(), None);
        self.store = Some(store.unwrap());
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    fn file(&self) -> Arc<File> {
        self.store().file(self.ino).unwrap()
    }

    /// The file with some durable data.
    fn written(&self) -> Arc<File> {
        let file = self.file();
        let contents = bytes(LIMIT, 1, true);
        self.store().write(&file, 0, &contents).unwrap();
        self.store().sync(&file).unwrap();
        file
    }

    /// Ends the session cleanly and begins another.
    fn reopen(&mut self) {
        let store = self.store.take().unwrap();
        store.shut_down().unwrap();
        self.kv = Arc::new(self.kv.reopen());
        self.open();
    }

    fn contents(&self) -> Vec<u8> {
        let file = self.file();
        // Remains of an earlier read in the buffer.
        let mut out = vec![0xa5; 2 * LIMIT];
        self.store().read(&file, 0, 2 * LIMIT, &mut out).unwrap();
        out
    }

    /// Asserts that packs count the bytes that the files occupy in them.
    fn check_usage(&self) {
        let volume = &*self.store().volume;
        let contents = volume.namespace.contents(self.ino).unwrap();
        let mut map = crate::map::FileMap::load(&volume.frames, &contents).unwrap();
        let expected: std::collections::BTreeMap<PackId, u64> = map
            .usage(&volume.frames)
            .unwrap()
            .into_iter()
            .filter(|(_, bytes)| *bytes > 0)
            .map(|(pack, bytes)| (pack, bytes as u64))
            .collect();
        let counted: std::collections::BTreeMap<PackId, u64> = volume
            .namespace
            .packs()
            .unwrap()
            .into_iter()
            .filter(|live| live.bytes > 0)
            .map(|live| (live.pack, live.bytes))
            .collect();
        assert_eq!(counted, expected);
        let live: std::collections::BTreeMap<PackId, u64> = volume
            .frames
            .packs
            .live()
            .into_iter()
            .filter(|(_, bytes)| *bytes > 0)
            .collect();
        assert_eq!(live, expected);
    }
}

/// The committer's work between cycles.
fn upkeep(store: &Store) -> StoreUpkeep {
    StoreUpkeep::new(
        &store.volume,
        &store.files,
        store.writer.catalog.as_ref(),
        &store.writer.commits,
        &store.gc,
    )
}

fn collected(store: &Store) -> GcState {
    store.request_gc(90);
    while store.gc_state() == GcState::Running {
        std::thread::yield_now();
    }
    store.gc_state()
}

/// A store on a disk that fails on command.
fn on_faults() -> (Fixture, Arc<FaultDisk>) {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultDisk::new(dir.path()).unwrap();
    let backing = disk.backing();
    (Fixture::on(dir, move |_| Arc::clone(&backing)), disk)
}

/// Small parts, so that small files have all of them.
const SIZES: Sizes = Sizes {
    tile: 1000,
    row: 64,
    array: 3000,
    piece: 800,
    gather: 1500,
    linear: 4096,
    front: 700,
    large: 30_000,
};

fn bytes(len: usize, seed: u8, noise: bool) -> Vec<u8> {
    let mut state = u64::from(seed) | 0x9e37_79b9_7f4a_7c00;
    (0..len)
        .map(|i| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            if noise {
                (state >> 56) as u8
            } else {
                seed.wrapping_add((i / 100) as u8)
            }
        })
        .collect()
}

/// Enough for a map with several leaves.
const CHUNKS: u64 = 2500;

/// Writes a file whose map is in packs, and reopens the store.
fn fold(fixture: &mut Fixture) {
    let file = fixture.file();
    for chunk in 0..CHUNKS {
        let contents = [chunk as u8; 4096];
        fixture
            .store()
            .write(&file, chunk * 4096, &contents)
            .unwrap();
    }
    fixture.store().sync(&file).unwrap();
    let mut locked = file.lock(&fixture.store().volume);
    locked.fold(&mut FrameEncoder::new(), &[]).unwrap();
    drop(locked);
    drop(file);
    fixture.reopen();
}

/// The older data is in a pack that gc rewrites and deletes on the first read from it. The reader
/// then finds the pack gone.
fn moved_when_read(fixture: &Fixture, disk: &FaultDisk) -> Arc<AtomicBool> {
    let (volume, files) = (&fixture.store().volume, &fixture.store().files);
    let (volume, files) = (Arc::clone(volume), Arc::clone(files));
    let commits = Arc::clone(&fixture.store().writer.commits);
    let PackBytes { pack, .. } = crate::pack::list(&*volume.backing).unwrap()[0];
    let moved = Arc::new(AtomicBool::new(false));
    let done = Arc::clone(&moved);
    disk.rule(move |step, path, _| {
        let meant = step == Step::Read && path == pack.path();
        if !meant || done.swap(true, Ordering::SeqCst) {
            return None;
        }
        Rewriter::new(&volume, &files).rewrite(pack).unwrap();
        while volume.frames.packs.live().contains_key(&pack) {
            commits.run().unwrap();
        }
        Some(io::Error::from_raw_os_error(libc::ENOENT))
    });
    moved
}

/// The error of the operating system, if that is the cause.
pub(crate) fn os_error(error: &Error) -> Option<i32> {
    match error {
        Error::Io { source, .. } | Error::Index(shale_index::Error::Io { source, .. }) => {
            source.raw_os_error()
        }
        Error::WriteBehind(cause) => os_error(cause),
        _ => None,
    }
}
