//! A store on a device that fails or is full, and one that changes while somebody looks.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use shale_backing::faults::{FaultDisk, Step, Tear};
use shale_backing::{Access, Backing, BackingFile, Entry, Space};
use shale_index::extent::{Extent, Place};

use super::*;
use crate::Asked;
use crate::pack::PackId;

/// A store on a disk that fails on command.
fn on_faults() -> (Bench, Arc<FaultDisk>) {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultDisk::new(dir.path()).unwrap();
    let backing = disk.backing();
    (Bench::on(dir, move |_| Arc::clone(&backing)), disk)
}

/// Enough for a map with several leaves.
const CHUNKS: u64 = 2500;

/// Writes a file whose map is in packs, and opens the store anew.
fn fold(bench: &mut Bench) {
    let file = bench.file();
    for chunk in 0..CHUNKS {
        let contents = [chunk as u8; 4096];
        bench.store().write(&file, chunk * 4096, &contents).unwrap();
    }
    bench.store().sync(&file).unwrap();
    let inner = &bench.store().inner;
    let mut state = file.state.lock();
    inner
        .fold(&file, &mut state, &mut FrameEncoder::new(), &[])
        .unwrap();
    drop(state);
    drop(file);
    bench.reopen();
}

/// Else later writes would subtract from a pack what was never added, and it would be deleted
/// with live frames in it.
#[test]
fn an_unreadable_leaf_leaves_nothing_uncommitted_in_the_map() {
    let (mut bench, disk) = on_faults();
    fold(&mut bench);
    let mut encoder = FrameEncoder::new();

    let inner = &bench.store().inner;
    let file = bench.file();
    let mut put = |offset| {
        let raw = [7; 4096];
        let kind = FrameKind::Data;
        let put = inner
            .frames
            .put(&mut encoder, kind, bench.ino, offset, Effort::Fast, &raw);
        let (part, pin) = put.unwrap();
        let extent = Extent {
            offset,
            len: 4096,
            place: Place::Frame(part),
        };
        (extent, pin)
    };
    // In the first leaf and in the last one.
    let (first, _first) = put(0);
    let (last, _last) = put((CHUNKS - 1) * 4096);
    let mut state = file.state.lock();
    let before = inner.extents(&file, &mut state, 0, 4096).unwrap();
    disk.rule(|step, _, _| (step == Step::Read).then(|| io::Error::from_raw_os_error(libc::EIO)));
    let replaced = inner.replace(&file, &mut state, &[first, last], None);
    disk.heal();
    assert_eq!(replaced.unwrap_err().errno(), libc::EIO);
    let after = inner.extents(&file, &mut state, 0, 4096).unwrap();
    assert_eq!(after, before);
    drop(state);

    bench.store().write(&file, 0, &[8; 4096]).unwrap();
    bench.store().sync(&file).unwrap();
    bench.check_usage();
}

#[test]
fn a_deleted_file_that_cannot_be_read_keeps_no_other_space() {
    let (mut bench, disk) = on_faults();
    fold(&mut bench);
    let (pack, _) = crate::pack::list(&*bench.store().inner.backing).unwrap()[0];
    let other = bench.create(b"g");
    for (name, ino) in [(b"f", bench.ino), (b"g", other)] {
        bench.store().namespace().unlink(ROOT, name).unwrap();
        bench.store().release_orphan(ino);
    }
    disk.rule(move |step, path, _| {
        let fails = step == Step::Read && path == PackId(pack).path();
        fails.then(|| io::Error::from_raw_os_error(libc::EIO))
    });
    while bench.store().namespace().inode(other).is_ok() {
        assert!(bench.store().inner.clean_up().is_err());
    }
    assert!(bench.store().namespace().inode(bench.ino).is_ok());
    disk.heal();
    while bench.store().namespace().inode(bench.ino).is_ok() {
        bench.store().sync_all().unwrap();
    }
}

#[test]
fn new_bytes_are_stored_over_older_ones_that_are_damaged() {
    use std::os::unix::fs::FileExt;
    let (mut bench, _disk) = on_faults();
    drop(bench.written());
    bench.reopen();
    let (pack, len) = crate::pack::list(&*bench.store().inner.backing).unwrap()[0];
    let path = bench.dir.path().join(PackId(pack).path());
    let damaged = std::fs::File::options().write(true).open(path).unwrap();
    let header = crate::pack::HEADER_LEN as u64;
    damaged
        .write_all_at(&vec![0x55; (len - header) as usize], header)
        .unwrap();
    let file = bench.file();
    bench.store().write(&file, 0, &[9; 3000]).unwrap();
    bench.store().sync(&file).unwrap();
    let mut found = Vec::new();
    bench.store().read(&file, 0, 3000, &mut found).unwrap();
    assert_eq!(found, [9; 3000]);
    let rest = bench.store().read(&file, 3000, 1000, &mut found);
    assert_eq!(rest.unwrap_err().errno(), libc::EIO);
}

#[test]
fn a_pack_that_cannot_be_begun_leaves_no_file() {
    let (bench, disk) = on_faults();
    let file = bench.file();
    disk.rule(|step, path, _| {
        let is_pack = path.extension().is_some_and(|e| e == "pack");
        (step == Step::Write && is_pack).then(|| io::Error::from_raw_os_error(libc::EDQUOT))
    });
    bench.store().write(&file, 0, &[9; 3000]).unwrap();
    assert_eq!(bench.store().sync(&file).unwrap_err().errno(), libc::EDQUOT);
    disk.heal();
    // The committer may be trying once more on its own.
    while bench.store().sync(&file).is_err() {}
    let packs = crate::pack::list(&*bench.store().inner.backing).unwrap();
    assert_eq!(packs.len(), 1);
}

/// What was written before, in a pack that the collector moves and deletes as soon as somebody
/// reads from it, who then finds it gone.
fn moved_when_read(bench: &Bench, disk: &FaultDisk) -> Arc<AtomicBool> {
    let inner = Arc::clone(&bench.store().inner);
    let (pack, _) = crate::pack::list(&*inner.backing).unwrap()[0];
    let moved = Arc::new(AtomicBool::new(false));
    let done = Arc::clone(&moved);
    disk.rule(move |step, path, _| {
        let meant = step == Step::Read && path == PackId(pack).path();
        if !meant || done.swap(true, Ordering::SeqCst) {
            return None;
        }
        inner.rewrite(pack, &mut FrameEncoder::new()).unwrap();
        while inner.frames.packs.live().contains_key(&pack) {
            inner.committer.run().unwrap();
        }
        Some(io::Error::from_raw_os_error(libc::ENOENT))
    });
    moved
}

#[test]
fn frames_that_move_while_a_chunk_is_merged_do_not_fail_a_sync() {
    let (mut bench, disk) = on_faults();
    drop(bench.written());
    bench.reopen();
    let mut contents = bytes(LIMIT, 1, true);
    contents[..3000].fill(9);
    let moved = moved_when_read(&bench, &disk);
    let file = bench.file();
    bench.store().write(&file, 0, &contents[..3000]).unwrap();
    let synced = bench.store().sync(&file);
    disk.heal();
    synced.unwrap();
    assert!(moved.load(Ordering::SeqCst));
    assert!(bench.contents() == contents, "contents differ");
    bench.check_usage();
}

#[test]
fn frames_that_move_while_a_file_is_described_are_found_again() {
    let (mut bench, disk) = on_faults();
    drop(bench.written());
    bench.reopen();
    let moved = moved_when_read(&bench, &disk);
    let codecs = bench.store().codecs(bench.ino);
    disk.heal();
    assert!(!codecs.unwrap().is_empty());
    assert!(moved.load(Ordering::SeqCst));
}

fn collected(store: &Store) -> Collecting {
    store.collect(90);
    while store.collecting() == Collecting::Running {
        std::thread::yield_now();
    }
    store.collecting()
}

/// Else all that is readable in it would be copied again whenever anything dies.
#[test]
fn a_pack_with_an_unreadable_frame_is_copied_once() {
    use std::os::unix::fs::FileExt;
    let mut bench = Bench::new(Device::Posix);
    let other = bench.create(b"g");
    for ino in [bench.ino, other] {
        let file = bench.store().file(ino).unwrap();
        let contents = bytes(LIMIT, 1, true);
        bench.store().write(&file, 0, &contents).unwrap();
        bench.store().sync(&file).unwrap();
    }
    bench.reopen();
    let store = bench.store();
    let packs = &store.inner.frames.packs;
    let pack = *packs.live().first_key_value().unwrap().0;
    let file = store.file(other).unwrap();
    // Of what is at the end, the last one cannot be read.
    let extents = |file: &Arc<File>| {
        let mut state = file.state.lock();
        let extents = store.inner.extents(file, &mut state, 0, LIMIT as u64);
        extents.unwrap()
    };
    let last = extents(&file).pop().unwrap();
    let (_, at) = last.place.origin().unwrap();
    let on_disk = std::fs::File::options()
        .write(true)
        .open(bench.dir.path().join(PackId(pack).path()))
        .unwrap();
    on_disk.write_all_at(&[0; 16], at).unwrap();
    store.truncate(&bench.file(), LIMIT as u64 / 2).unwrap();
    store.sync(&bench.file()).unwrap();

    assert_eq!(collected(store), Collecting::Failed);
    assert_eq!(packs.live()[&pack], last.stored());
    let readable = extents(&file);
    assert!(readable[..15].iter().all(|e| e.place.pack() != Some(pack)));
    let appended = store.counters().appended.get();
    assert_eq!(collected(store), Collecting::Failed);
    assert_eq!(store.counters().appended.get(), appended);

    let now = Instant::now();
    assert!(store.inner.collector.stuck(now).contains(&pack));
    let later = now + Duration::from_secs(300);
    assert!(store.inner.collector.stuck(later).is_empty());
}

/// Settling or deleting may free the rest of a pack that is being looked at.
#[test]
fn a_pack_that_dies_while_it_is_collected_is_no_failure() {
    let (mut bench, disk) = on_faults();
    drop(bench.written());
    bench.reopen();
    let store = bench.store();
    let file = bench.file();
    store.truncate(&file, LIMIT as u64 / 4 * 3).unwrap();
    let moved = moved_when_read(&bench, &disk);
    let outcome = collected(store);
    disk.heal();
    assert!(moved.load(Ordering::SeqCst));
    assert_eq!(outcome, Collecting::Idle);
    bench.check_usage();
}

#[test]
fn a_missing_pack_does_not_keep_others_from_being_collected() {
    let mut bench = Bench::new(Device::Posix);
    drop(bench.written());
    bench.reopen();
    let other = bench.create(b"g");
    let file = bench.store().file(other).unwrap();
    let contents = bytes(LIMIT, 2, true);
    bench.store().write(&file, 0, &contents).unwrap();
    bench.store().sync(&file).unwrap();
    bench.store().truncate(&file, LIMIT as u64 / 4 * 3).unwrap();
    drop(file);
    let packs = crate::pack::list(&*bench.store().inner.backing).unwrap();
    let [(missing, _), (pack, _)] = packs[..] else {
        panic!("a pack for each session: {packs:?}");
    };
    bench.store.take().unwrap().shut_down().unwrap();
    std::fs::remove_file(bench.dir.path().join(PackId(missing).path())).unwrap();
    bench.kv = Arc::new(bench.kv.reopen());
    bench.open();

    let store = bench.store();
    assert_eq!(collected(store), Collecting::Failed);
    assert!(store.inner.frames.packs.live()[&missing] > 0);
    assert!(store.inner.frames.packs.is_dead(pack));
    let file = store.file(other).unwrap();
    let mut out = Vec::new();
    store.read(&file, 0, LIMIT, &mut out).unwrap();
    assert!(out == contents[..LIMIT / 4 * 3], "contents differ");
}

/// A large device on which others have left little room, or of which this user may have little.
#[derive(Debug)]
struct Crowded {
    inner: Arc<dyn Backing>,
    total: u64,
    room: u64,
    /// What it says when there is no room. A quota does not show in the free space.
    errno: i32,
    /// What is held in advance; none where that cannot be done.
    held: Option<AtomicU64>,
}

impl Crowded {
    fn used(&self) -> io::Result<u64> {
        let packs = crate::pack::list(&*self.inner).map_err(io::Error::other)?;
        let held = self
            .held
            .as_ref()
            .map_or(0, |held| held.load(Ordering::SeqCst));
        Ok(packs.iter().map(|(_, len)| len).sum::<u64>() + held)
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
            is_reserve: path == Path::new(crate::reserve::FILE),
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

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
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

/// Half of every pack is alive then, and must be copied before anything is freed.
#[test]
fn deleting_every_second_file_of_a_full_store_gives_the_space_back() {
    const MIB: u64 = 1 << 20;
    let dir = tempfile::tempdir().unwrap();
    let device = Arc::new(Crowded {
        inner: open_device(dir.path(), Choice::default()).unwrap(),
        total: 16 << 30,
        room: 300 * MIB,
        errno: libc::ENOSPC,
        held: None,
    });
    let shared = Arc::clone(&device);
    let bench = Bench::on(dir, move |_| Arc::new(OnCrowded(Arc::clone(&shared))));
    let store = bench.store();
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
            let ino = made.unwrap().0.ino;
            let file = store.file(ino).unwrap();
            let written = store.write(&file, 0, &contents);
            store.close(file);
            match written {
                Ok(()) => files.push((name, ino)),
                Err(e) => {
                    assert_eq!(e.errno(), libc::ENOSPC);
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
    while !store.namespace().orphans().unwrap().is_empty() {
        store.sync_all().unwrap();
    }
    assert_eq!(collected(store), Collecting::Idle);
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

/// Who counts takes one lock after the other; with both in hand it and who forgets a file would
/// wait for each other.
#[test]
fn counting_files_while_others_are_forgotten_comes_to_an_end() {
    let (bench, _disk) = on_faults();
    let store = bench.store();
    std::thread::scope(|scope| {
        scope.spawn(|| (0..20_000).for_each(|_| assert!(store.inner.discard(u64::MAX))));
        (0..20_000).for_each(|_| assert_eq!(store.gauges().dirty_files, 0));
    });
}

/// A cache above accepts as much as it was told it may, and asks first when room is short. Whatever
/// it accepted must be stored, also within a quota that does not show in the free space.
#[test]
fn what_a_cache_accepted_within_a_quota_is_stored() {
    const MIB: u64 = 1 << 20;
    const ABOVE: u64 = 8 * MIB;
    let dir = tempfile::tempdir().unwrap();
    let device = Arc::new(Crowded {
        inner: open_device(dir.path(), Choice::default()).unwrap(),
        total: 16 << 30,
        room: 300 * MIB,
        errno: libc::EDQUOT,
        held: Some(AtomicU64::new(0)),
    });
    let shared = Arc::clone(&device);
    let bench = Bench::on(dir, move |_| Arc::new(OnCrowded(Arc::clone(&shared))));
    let store = bench.store();
    store.set_cached_above(ABOVE);
    let large = NewNode {
        chunk_shift: 20,
        ..node()
    };
    let ino = store
        .namespace()
        .create(ROOT, b"cached", &large)
        .unwrap()
        .0
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
            break e.errno();
        }
        for piece in contents.chunks(MIB as usize) {
            store.write_back(&file, len, piece, false).unwrap();
            len += MIB;
        }
        assert!(len < 400 * MIB, "never full");
    };
    assert_eq!(refused, libc::EDQUOT);
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

/// The directory of a pack is found from its end: nothing of a frame that did not fit may be left
/// behind it.
#[test]
fn half_a_frame_that_found_no_room_does_not_hide_the_directory() {
    let (bench, disk) = on_faults();
    let file = bench.file();
    let store = bench.store();
    store.write(&file, 0, b"before").unwrap();
    store.sync(&file).unwrap();
    disk.tear(Tear::Half);
    disk.rule(|step, path, _| {
        let is_pack = path.extension().is_some_and(|e| e == "pack");
        (step == Step::Write && is_pack).then(|| io::Error::from_raw_os_error(libc::ENOSPC))
    });
    store.write(&file, 0, &bytes(100_000, 3, true)).unwrap();
    assert_eq!(store.sync(&file).unwrap_err().errno(), libc::ENOSPC);
    disk.heal();
    store.truncate(&file, 0).unwrap();
    store.sync_all().unwrap();
    store.inner.frames.packs.roll();
    assert!(store.inner.frames.packs.sync().is_empty());
    let (pack, _) = crate::pack::list(&*store.inner.backing).unwrap()[0];
    let packed = store.inner.frames.packs.open_pack(pack).unwrap();
    assert!(
        crate::pack::read_directory(&*packed, pack)
            .unwrap()
            .is_some()
    );
    store.close(file);
}
