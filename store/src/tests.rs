//! A store against a plain array of bytes.

mod faults;

use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use shale_backing::{Backing, Choice, Device, open_device};
use shale_codec::{Effort, FrameKind};
use shale_index::engine::MemKv;
use shale_index::schema::{Phase, S_IFREG};
use shale_index::{NewNode, ROOT};

use crate::frames::FrameEncoder;
use crate::settle::Sizes;
use crate::superblock::Superblock;
use crate::{
    Block, ByteOrder, Collecting, ElementKind, File, Region, Seek, Seen, SettleOptions, Store,
    StoreOptions,
};

const LIMIT: usize = 64 << 10;

pub(crate) fn options() -> StoreOptions {
    StoreOptions {
        memory: 256 << 10,
        workers: 2,
        owner: (0, 0),
        effort: Effort::Fast,
        purpose: "test".to_owned(),
        device: Choice::default(),
        kernel_cache: true,
    }
}

/// A file to be made.
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

struct Bench {
    dir: tempfile::TempDir,
    backing: Opener,
    kv: Arc<MemKv>,
    store: Option<Store>,
    ino: u64,
}

impl Bench {
    fn new(device: Device) -> Self {
        // Persistent memory is played by the memory of the machine, where there is a directory.
        let memory = Path::new("/dev/shm");
        let dir = if device == Device::Pmem && memory.is_dir() {
            tempfile::tempdir_in(memory).unwrap()
        } else {
            tempfile::tempdir().unwrap()
        };
        let choice = Choice {
            device: Some(device),
            ..Choice::default()
        };
        Self::on(dir, move |path| open_device(path, choice).unwrap())
    }

    fn on(dir: tempfile::TempDir, backing: impl Fn(&Path) -> Arc<dyn Backing> + 'static) -> Self {
        std::fs::create_dir(dir.path().join("packs")).unwrap();
        let mut bench = Self {
            dir,
            backing: Box::new(backing),
            kv: Arc::new(MemKv::new()),
            store: None,
            ino: 0,
        };
        bench.open();
        bench.ino = bench.create(b"f");
        bench
    }

    fn create(&self, name: &[u8]) -> u64 {
        let namespace = self.store().namespace();
        namespace.create(ROOT, name, &node()).unwrap().0.ino
    }

    fn open(&mut self) {
        let backing = (self.backing)(self.dir.path());
        let superblock = Superblock {
            id: [1; 16],
            created: 0,
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

    /// The file with something durable in it.
    fn written(&self) -> Arc<File> {
        let file = self.file();
        let contents = bytes(LIMIT, 1, true);
        self.store().write(&file, 0, &contents).unwrap();
        self.store().sync(&file).unwrap();
        file
    }

    /// Ends the session in an orderly way and begins another.
    fn reopen(&mut self) {
        let store = self.store.take().unwrap();
        store.shut_down().unwrap();
        self.kv = Arc::new(self.kv.reopen());
        self.open();
    }

    fn contents(&self) -> Vec<u8> {
        let file = self.file();
        // What somebody else has read before.
        let mut out = vec![0xa5; 2 * LIMIT];
        self.store().read(&file, 0, 2 * LIMIT, &mut out).unwrap();
        out
    }

    /// The counters of packs are the sum of what the files occupy.
    fn check_usage(&self) {
        let inode = self.store().namespace().inode(self.ino).unwrap();
        let inner = &self.store().inner;
        let records = inner.namespace.commit_records(self.ino).unwrap();
        let mut map = crate::map::FileMap::load(&inner.frames, &inode, records).unwrap();
        let expected: std::collections::BTreeMap<u64, u64> = map
            .usage(&inner.frames)
            .unwrap()
            .into_iter()
            .filter(|(_, bytes)| *bytes > 0)
            .map(|(pack, bytes)| (pack, bytes as u64))
            .collect();
        let counted: std::collections::BTreeMap<u64, u64> = inner
            .namespace
            .packs()
            .unwrap()
            .into_iter()
            .filter(|(_, bytes)| *bytes > 0)
            .collect();
        assert_eq!(counted, expected);
        let live: std::collections::BTreeMap<u64, u64> = inner
            .frames
            .packs
            .live()
            .into_iter()
            .filter(|(_, bytes)| *bytes > 0)
            .collect();
        assert_eq!(live, expected);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write {
        offset: usize,
        len: usize,
        seed: u8,
        noise: bool,
    },
    Truncate(usize),
    Punch {
        offset: usize,
        len: usize,
    },
    Sync,
    Read {
        offset: usize,
        len: usize,
    },
    Fold,
    Collect,
    /// Two regions at some place with records of some length.
    Settle {
        offset: usize,
        record: usize,
        records: usize,
        workers: usize,
    },
    Reopen,
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

fn regions(offset: usize, record: usize, records: usize) -> Vec<Region> {
    let block = |at: usize, width: u32, dims: &[u64]| Block {
        at: at as u64,
        width,
        kind: ElementKind::Float,
        order: ByteOrder::Little,
        dims: dims.to_vec(),
    };
    let quarter = record / 4;
    let first = Region {
        offset: offset as u64,
        records: records as u64,
        record: record as u64,
        blocks: vec![
            block(quarter % 3, 4, &[2, (quarter / 8) as u64]),
            block(2 * quarter + 3, 8, &[(quarter / 8) as u64]),
        ],
    };
    let second = Region {
        offset: (offset + record * records) as u64 + 5,
        records: 4000,
        record: 4,
        blocks: vec![block(0, 4, &[])],
    };
    vec![first, second]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..LIMIT, 1usize..9000, any::<u8>(), any::<bool>()).prop_map(
            |(offset, len, seed, noise)| Step::Write { offset, len, seed, noise }
        ),
        4 => (0..16usize, any::<u8>()).prop_map(
            |(chunk, seed)| Step::Write { offset: chunk * 4096, len: 4096, seed, noise: true }
        ),
        2 => (0..LIMIT).prop_map(Step::Truncate),
        2 => (0..LIMIT, 1usize..20_000).prop_map(|(offset, len)| Step::Punch { offset, len }),
        3 => Just(Step::Sync),
        4 => (0..LIMIT, 1usize..9000).prop_map(|(offset, len)| Step::Read { offset, len }),
        1 => Just(Step::Fold),
        1 => Just(Step::Collect),
        2 => (0..LIMIT, 100usize..5000, 1usize..40, 1usize..3).prop_map(
            |(offset, record, records, workers)| Step::Settle { offset, record, records, workers }
        ),
        1 => Just(Step::Reopen),
    ]
}

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

fn run(device: Device, steps: &[Step]) {
    let mut bench = Bench::new(device);
    let mut model: Vec<u8> = Vec::new();
    for step in steps {
        let file = bench.file();
        let store = bench.store();
        match *step {
            Step::Write {
                offset,
                len,
                seed,
                noise,
            } => {
                let data = bytes(len, seed, noise);
                store.write(&file, offset as u64, &data).unwrap();
                if model.len() < offset + len {
                    model.resize(offset + len, 0);
                }
                model[offset..offset + len].copy_from_slice(&data);
            }
            Step::Truncate(size) => {
                store.truncate(&file, size as u64).unwrap();
                model.resize(size, 0);
            }
            Step::Punch { offset, len } => {
                store.punch(&file, offset as u64, len as u64).unwrap();
                let end = model.len().min(offset + len);
                if offset < end {
                    model[offset..end].fill(0);
                }
            }
            Step::Sync => store.sync(&file).unwrap(),
            Step::Read { offset, len } => {
                // What somebody else has read before.
                let mut out = vec![0xa5; 2 * LIMIT];
                store.read(&file, offset as u64, len, &mut out).unwrap();
                let end = model.len().min(offset + len);
                assert_eq!(out, model.get(offset..end).unwrap_or(&[]));
                if let Some(data) = store.seek(&file, offset as u64, Seek::Data).unwrap() {
                    assert!(model[offset..data as usize].iter().all(|&b| b == 0));
                } else if offset < model.len() {
                    assert!(model[offset..].iter().all(|&b| b == 0));
                }
                if let Some(hole) = store.seek(&file, offset as u64, Seek::Hole).unwrap() {
                    assert!(hole as usize <= model.len() && hole as usize >= offset);
                }
            }
            Step::Fold => {
                store.sync(&file).unwrap();
                let mut encoder = crate::frames::FrameEncoder::new();
                let mut state = file.state.lock();
                store
                    .inner
                    .fold(&file, &mut state, &mut encoder, &[])
                    .unwrap();
            }
            Step::Collect => {
                store.sync(&file).unwrap();
                let packs = &store.inner.frames.packs;
                packs.roll();
                assert!(packs.sync().is_empty());
                let mut encoder = crate::frames::FrameEncoder::new();
                for (pack, live) in packs.live() {
                    if live == 0 || !packs.is_quiet(pack) {
                        continue;
                    }
                    match store.inner.rewrite(pack, &mut encoder) {
                        Ok(()) => {}
                        // The collector's own thread was faster.
                        Err(e) => assert!(e.is_gone() && packs.is_dead(pack), "{e}"),
                    }
                    let left = packs.live().get(&pack).copied();
                    assert_eq!(left.unwrap_or(0), 0, "something stayed in the pack");
                }
            }
            Step::Settle {
                offset,
                record,
                records,
                workers,
            } => {
                store.sync(&file).unwrap();
                let options = SettleOptions {
                    workers,
                    effort: Effort::Dense,
                    force: true,
                    anew: workers == 1,
                    pace: &|_| true,
                };
                let regions = regions(offset, record, records);
                // The collector may move a part of it meanwhile; then it is done again.
                let settled =
                    (0..8).any(
                        |_| match store.inner.settle(&file, &regions, &options, &SIZES) {
                            Ok(outcome) => outcome.void == 0 && !outcome.changed,
                            Err(e) if e.is_gone() => false,
                            Err(e) => panic!("{e}"),
                        },
                    );
                assert!(settled, "moved again and again");
                let phase = store.namespace().inode(bench.ino).unwrap().phase;
                assert_eq!(phase, Phase::Settled);
            }
            Step::Reopen => {
                drop(file);
                bench.reopen();
                bench.check_usage();
            }
        }
        assert_eq!(
            bench.store().inode(bench.ino).unwrap().inode.size,
            model.len() as u64
        );
    }
    assert!(bench.contents() == model, "contents differ");
    bench.reopen();
    bench.check_usage();
    assert!(
        bench.contents() == model,
        "contents differ after the last session"
    );
}

fn a_deleted_file_gives_its_packs_back(device: Device) {
    let bench = Bench::new(device);
    let file = bench.written();
    drop(file);
    bench.store().namespace().unlink(ROOT, b"f").unwrap();
    bench.store().release_orphan(bench.ino);
    bench.store().inner.frames.packs.roll();
    while !crate::pack::list(&*bench.store().inner.backing)
        .unwrap()
        .is_empty()
    {
        bench.store().sync_all().unwrap();
    }
    assert!(bench.store().namespace().orphans().unwrap().is_empty());
}

/// Else settling or collecting could move what is being counted as freed.
fn a_file_that_is_going_cannot_be_worked_on(device: Device) {
    let bench = Bench::new(device);
    let file = bench.written();
    bench.store().close(file);
    bench.store().namespace().unlink(ROOT, b"f").unwrap();
    // The committer has done with it a moment after the sync.
    while bench.store().inner.files_in_use() > 0 {
        std::thread::yield_now();
    }
    bench.store().release_orphan(bench.ino);
    let refused = bench.store().file(bench.ino).unwrap_err();
    assert_eq!(refused.errno(), libc::ENOENT);
}

fn a_file_is_forgotten_by_whoever_uses_it_last(device: Device) {
    let bench = Bench::new(device);
    let inner = &bench.store().inner;
    bench.store().close(bench.written());
    while inner.files_in_use() > 0 {
        std::thread::yield_now();
    }
    let file = bench.file();
    let looked_at = inner.file_in_use(bench.ino).unwrap();
    bench.store().close(file);
    assert_eq!(inner.files_in_use(), 1);
    drop(looked_at);
    assert_eq!(inner.files_in_use(), 0);
}

/// The index is asked before, and the file looked for after, its commit.
fn what_is_committed_during_a_look_is_seen(device: Device) {
    let bench = Bench::new(device);
    let store = bench.store();
    let file = bench.file();
    store.write(&file, 0, &bytes(LIMIT, 1, true)).unwrap();
    let seen = store.with_news(|| {
        let before = store.namespace().inode(bench.ino)?;
        assert_eq!(before.size, 0);
        store.sync(&file)?;
        store.close(file);
        while store.inner.files_in_use() > 0 {
            std::thread::yield_now();
        }
        Ok(before)
    });
    let Seen { inode, unwritten } = seen.unwrap();
    assert_eq!((inode.size, unwritten), (LIMIT as u64, 0));
}

/// As when everything in it was settled or copied in vain.
fn a_pack_in_which_nothing_is_committed_is_deleted(device: Device) {
    let bench = Bench::new(device);
    let inner = &bench.store().inner;
    let (_, pin) = inner
        .frames
        .put(
            &mut FrameEncoder::new(),
            FrameKind::Data,
            bench.ino,
            0,
            Effort::Fast,
            &bytes(LIMIT, 1, true),
        )
        .unwrap();
    inner.frames.packs.roll();
    let packs = || crate::pack::list(&*inner.backing).unwrap().len();
    for _ in 0..3 {
        bench.store().sync_all().unwrap();
        assert_eq!(
            packs(),
            1,
            "deleted though something in it waits for a commit"
        );
    }
    drop(pin);
    for _ in 0..3 {
        bench.store().sync_all().unwrap();
    }
    assert_eq!(packs(), 0);
}

/// Else a store of less than a gigabyte would never become smaller.
fn what_is_dead_in_a_pack_that_grows_is_given_back_at_rest(device: Device) {
    let bench = Bench::new(device);
    let (store, file) = (bench.store(), bench.file());
    let packs = || crate::pack::list(&*store.inner.backing).unwrap();
    let rested = || {
        store.inner.rest();
        while store.collecting() == Collecting::Running {
            std::thread::yield_now();
        }
        assert_eq!(store.collecting(), Collecting::Idle);
    };
    let write = |seed| {
        let contents = bytes(2 << 20, seed, true);
        store.write(&file, 0, &contents).unwrap();
        store.sync(&file).unwrap();
        contents
    };
    write(1);
    let first = packs();
    rested();
    assert_eq!(packs(), first, "ended though all of it is alive");
    write(2);
    let contents = write(3);
    rested();
    let left = packs();
    assert!(
        first
            .iter()
            .all(|(pack, _)| left.iter().all(|(other, _)| other != pack))
    );
    let mut out = Vec::new();
    store.read(&file, 0, contents.len(), &mut out).unwrap();
    assert!(out == contents, "contents differ");
    bench.check_usage();
}

fn a_damaged_frame_is_an_error_and_never_wrong_bytes(device: Device) {
    use std::os::unix::fs::FileExt;
    let mut bench = Bench::new(device);
    let data = bytes(LIMIT, 3, true);
    let file = bench.file();
    bench.store().write(&file, 0, &data).unwrap();
    drop(file);
    bench.reopen();
    let (pack, len) = crate::pack::list(&*bench.store().inner.backing).unwrap()[0];
    let path = bench.dir.path().join(crate::pack::PackId(pack).path());
    let pack_file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut byte = [0];
    let at = len / 2;
    pack_file.read_exact_at(&mut byte, at).unwrap();
    pack_file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
    let file = bench.file();
    let mut failures = 0;
    for chunk in 0..LIMIT / 4096 {
        let mut out = Vec::new();
        match bench
            .store()
            .read(&file, chunk as u64 * 4096, 4096, &mut out)
        {
            Ok(()) => assert_eq!(out, &data[chunk * 4096..][..4096]),
            Err(e) => {
                assert_eq!(e.errno(), libc::EIO);
                failures += 1;
            }
        }
    }
    assert_eq!(failures, 1, "exactly the damaged chunk fails");
}

#[derive(Debug)]
struct CutAt(u64);

impl crate::Advice for CutAt {
    fn segments(&self, start: u64, end: u64) -> Vec<crate::Segment> {
        let cut = self.0.clamp(start, end);
        let part = |start, end, width| crate::Segment {
            start,
            end,
            element: Some(crate::Element {
                width,
                kind: ElementKind::Float,
                order: ByteOrder::Big,
            }),
        };
        [part(start, cut, 4), part(cut, end, 8)]
            .into_iter()
            .filter(|segment| segment.start < segment.end)
            .collect()
    }
}

fn a_chunk_that_crosses_a_variable_becomes_a_frame_for_each(device: Device) {
    let bench = Bench::new(device);
    let file = bench.file();
    file.set_advice(Some(Arc::new(CutAt(6000))));
    let data = bytes(12_000, 1, false);
    bench.store().write(&file, 0, &data).unwrap();
    bench.store().sync(&file).unwrap();
    let inner = &bench.store().inner;
    let extents = inner
        .extents(&file, &mut file.state.lock(), 0, 12_000)
        .unwrap();
    let starts: Vec<u64> = extents.iter().map(|extent| extent.offset).collect();
    assert_eq!(starts, [0, 4096, 6000, 8192]);
    assert_eq!(bench.contents(), data);
}

fn packs_of_settle_workers_are_balanced_by_bytes(device: Device) {
    const UNITS: usize = 800;
    let bench = Bench::new(device);
    let file = bench.file();
    // Noise fades out along the file.
    let mut data = Vec::new();
    for unit in 0..UNITS {
        let noise = 4096 * (UNITS - unit) * (UNITS - unit) / (UNITS * UNITS);
        let mut part = bytes(4096, (unit % 251) as u8, true);
        part[noise..].fill(unit as u8);
        data.extend(part);
    }
    bench.store().write(&file, 0, &data).unwrap();
    bench.store().sync(&file).unwrap();
    let inner = &bench.store().inner;
    let older = inner.frames.packs.live();
    let options = SettleOptions {
        workers: 4,
        effort: Effort::Dense,
        force: true,
        anew: false,
        pace: &|_| true,
    };
    inner.settle(&file, &[], &options, &SIZES).unwrap();
    let sizes: Vec<u64> = inner
        .frames
        .packs
        .live()
        .into_iter()
        .filter(|(pack, live)| !older.contains_key(pack) && *live > 0)
        .map(|(_, live)| live)
        .collect();
    assert_eq!(sizes.len(), 4, "a pack for each worker");
    let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
    assert!(*most as f64 <= *least as f64 * 1.05, "{sizes:?}");
    // The same by count.
    let stored = |units: std::ops::Range<usize>| -> u64 {
        let (start, end) = (units.start as u64 * 4096, units.end as u64 * 4096);
        let extents = inner.extents(&file, &mut file.state.lock(), start, end);
        extents
            .unwrap()
            .iter()
            .map(shale_index::extent::Extent::stored)
            .sum()
    };
    let by_count: Vec<u64> = (0..4)
        .map(|quarter| stored(quarter * UNITS / 4..(quarter + 1) * UNITS / 4))
        .collect();
    let (least, most) = (
        by_count.iter().min().unwrap(),
        by_count.iter().max().unwrap(),
    );
    assert!(*most as f64 > *least as f64 * 1.5, "{by_count:?}");
    let mut out = Vec::new();
    bench.store().read(&file, 0, data.len(), &mut out).unwrap();
    assert!(out == data, "contents differ");
}

/// Everything must hold on every kind of device.
macro_rules! on_every_device {
    ($($test:ident),* $(,)?) => {
        on_every_device!(@ posix, Posix, $($test),*);
        on_every_device!(@ pmem, Pmem, $($test),*);
    };
    (@ $module:ident, $device:ident, $($test:ident),*) => {
        mod $module {
            use proptest::prelude::*;
            use shale_backing::Device;

            $(
                #[test]
                fn $test() {
                    super::$test(Device::$device);
                }
            )*

            proptest! {
                #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
                #[test]
                fn a_file_is_an_array_of_bytes(
                    steps in prop::collection::vec(super::step(), 1..50),
                ) {
                    super::run(Device::$device, &steps);
                }
            }
        }
    };
}

on_every_device! {
    a_deleted_file_gives_its_packs_back,
    a_file_that_is_going_cannot_be_worked_on,
    a_file_is_forgotten_by_whoever_uses_it_last,
    what_is_committed_during_a_look_is_seen,
    a_pack_in_which_nothing_is_committed_is_deleted,
    what_is_dead_in_a_pack_that_grows_is_given_back_at_rest,
    a_damaged_frame_is_an_error_and_never_wrong_bytes,
    a_chunk_that_crosses_a_variable_becomes_a_frame_for_each,
    packs_of_settle_workers_are_balanced_by_bytes,
}

#[test]
fn a_panic_while_collecting_is_reported_and_the_store_lives_on() {
    let bench = Bench::new(Device::Posix);
    let (store, file) = (bench.store(), bench.file());
    let bytes = vec![7; 30_000];
    store.write(&file, 0, &bytes).unwrap();
    store.sync(&file).unwrap();
    let collected = || {
        store.collect(90);
        while store.collecting() == Collecting::Running {
            std::thread::yield_now();
        }
        store.collecting()
    };
    assert_eq!(collected(), Collecting::Idle);
    store.inner.collector.set_trap();
    assert_eq!(collected(), Collecting::Failed);
    assert_eq!(store.counters().collections_failed.get(), 1);
    assert_eq!(bench.contents(), bytes);
    store.write(&file, 0, &[8; 20_000]).unwrap();
    store.sync(&file).unwrap();
    assert_eq!(collected(), Collecting::Idle);
    assert_eq!(bench.contents()[..20_000], [8; 20_000]);
    bench.check_usage();
}
