//! Two stores over one directory and one index: nothing that one writes is lost by what the other
//! one does.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};

use proptest::prelude::*;
use shale_backing::faults::{FaultDisk, Step};
use shale_backing::{Backing, PosixBacking};
use shale_index::engine::ReferenceKv;
use shale_index::kv::{
    KeyRange, Lease, Limits, Outcome, Snapshot, Txn, Version, Visitor, Want, WatchGuard, Watcher,
};
use shale_index::{Ino, Kv, ROOT};

use super::{bytes, node, options};
use crate::disk::{Format, Superblock};
use crate::map::FileMap;
use crate::pack::PackId;
use crate::{File, Seek, SettleOptions, Store};

const SUPERBLOCK: Superblock = Superblock {
    id: [1; 16],
    created: 0,
    format: Format::Current,
};

/// What the engine over etcd takes.
const LIMITS: Limits = Limits {
    compares: 32,
    ops: 95,
    bytes: 1_400_000,
};

/// Stores of several sessions.
struct Nodes {
    dir: tempfile::TempDir,
    kv: ReferenceKv,
    /// The stores know of each other.
    aware: bool,
    stores: Vec<Store>,
}

/// Called before a request.
type Hook = Box<dyn FnMut() + Send>;

/// A session of the index that can hide that there are others, and lets a test act between two of
/// its requests.
struct Session {
    kv: ReferenceKv,
    aware: bool,
    hook: Mutex<Option<Hook>>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.kv.fmt(f)
    }
}

impl Session {
    fn before_request(&self) {
        let hook = self.hook.lock().unwrap().take();
        if let Some(mut hook) = hook {
            hook();
            *self.hook.lock().unwrap() = Some(hook);
        }
    }
}

impl Kv for Session {
    fn get_many(&self, wants: &[Want]) -> Result<Snapshot, shale_index::Error> {
        self.before_request();
        self.kv.get_many(wants)
    }

    fn commit(&self, txn: &Txn) -> Result<Outcome, shale_index::Error> {
        self.before_request();
        self.kv.commit(txn)
    }

    fn sync(&self, version: Version) -> Result<(), shale_index::Error> {
        self.kv.sync(version)
    }

    fn version(&self) -> Version {
        self.kv.version()
    }

    fn syncs(&self) -> u64 {
        self.kv.syncs()
    }

    fn lease(&self) -> Lease {
        self.kv.lease()
    }

    fn limits(&self) -> Limits {
        self.kv.limits()
    }

    fn is_shared(&self) -> bool {
        self.aware
    }

    fn close(&self) -> Result<(), shale_index::Error> {
        self.kv.close()
    }

    fn dump(&self, visit: &mut Visitor<'_>) -> Result<(), shale_index::Error> {
        self.kv.dump(visit)
    }

    fn scan(
        &self,
        range: &KeyRange,
        visit: &mut Visitor<'_>,
        restart: &mut dyn FnMut(),
    ) -> Result<Version, shale_index::Error> {
        self.kv.scan(range, visit, restart)
    }

    fn watch(
        &self,
        ranges: Vec<KeyRange>,
        watcher: Watcher,
    ) -> Result<WatchGuard, shale_index::Error> {
        self.kv.watch(ranges, watcher)
    }
}

/// A store in a directory, as one session of an index.
fn store(dir: &Path, kv: Arc<dyn Kv>) -> Store {
    store_on(Arc::new(PosixBacking::new(dir)), kv)
}

fn store_on(backing: Arc<dyn Backing>, kv: Arc<dyn Kv>) -> Store {
    Store::with_engine(backing, kv, SUPERBLOCK, &options(), None).unwrap()
}

impl Nodes {
    fn new(aware: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("packs")).unwrap();
        Self {
            dir,
            kv: ReferenceKv::shared(LIMITS),
            aware,
            stores: Vec::new(),
        }
    }

    fn grow_to(&mut self, count: usize) {
        while self.stores.len() < count {
            self.join();
        }
    }

    fn session(&self) -> Arc<dyn Kv> {
        Arc::new(Session {
            kv: self.kv.another(),
            aware: self.aware,
            hook: Mutex::default(),
        })
    }

    fn join(&mut self) -> &Store {
        let store = store(self.dir.path(), self.session());
        self.stores.push(store);
        self.stores.last().unwrap()
    }

    fn create(&self, name: &[u8]) -> Ino {
        let namespace = self.stores[0].namespace();
        namespace.create(ROOT, name, &node()).unwrap().ino
    }

    /// Asserts what the file holds, by a look from each store.
    fn assert_contents(&self, ino: Ino, expected: &[u8]) {
        for (number, store) in self.stores.iter().enumerate() {
            assert_eq!(store.stat(ino).unwrap().inode.size, expected.len() as u64);
            let file = store.file(ino).unwrap();
            assert!(read(store, &file) == expected, "as store {number} sees it");
            store.close(file);
        }
    }

    /// Asserts that packs count what files use, once everything is folded and drained.
    fn assert_usage(&self, inodes: &[Ino]) {
        let Store { volume, files, .. } = &self.stores[0];
        let mut used: BTreeMap<PackId, u64> = BTreeMap::new();
        for &ino in inodes {
            let file = files.open(ino).unwrap();
            let mut encoder = crate::frame::FrameEncoder::new();
            file.lock(volume).fold(&mut encoder, &[]).unwrap();
            let contents = volume.namespace.contents(ino).unwrap();
            assert!(contents.records.is_empty());
            let mut map = FileMap::load(&volume.frames, &contents).unwrap();
            for (pack, bytes) in map.usage(&volume.frames).unwrap() {
                *used.entry(pack).or_default() += bytes as u64;
            }
            let mut stored = 0;
            map.visit(&volume.frames, |visited| {
                if let crate::map::Visited::Extent(extent) = visited {
                    stored += extent.stored();
                }
            })
            .unwrap();
            assert_eq!(contents.inode.stored, stored);
        }
        volume.namespace.drain_freed().unwrap();
        volume.namespace.pass_totals_on().unwrap();
        let kv = volume.namespace.kv();
        let report = crate::fsck::fsck_index(&volume.backing, &SUPERBLOCK, &**kv).unwrap();
        assert_eq!(report.problems, []);
        let counted = volume.namespace.packs().unwrap().into_iter();
        let counted: BTreeMap<PackId, u64> = counted
            .filter(|on| on.bytes > 0)
            .map(|on| (on.pack, on.bytes))
            .collect();
        used.retain(|_, bytes| *bytes > 0);
        assert_eq!(counted, used);
    }
}

fn read(store: &Store, file: &Arc<File>) -> Vec<u8> {
    let mut out = vec![0xa5; 7];
    store.read(file, 0, 1 << 20, &mut out).unwrap();
    out
}

fn write(store: &Store, file: &Arc<File>, offset: u64, data: &[u8]) {
    store.write(file, offset, data).unwrap();
    store.sync(file).unwrap();
}

/// Lays data over an array of bytes.
fn lay(expected: &mut Vec<u8>, offset: usize, data: &[u8]) {
    expected.resize(expected.len().max(offset + data.len()), 0);
    expected[offset..offset + data.len()].copy_from_slice(data);
}

#[test]
fn size_and_bytes_are_read_from_one_snapshot() {
    let mut nodes = Nodes::new(true);
    nodes.grow_to(2);
    let ino = nodes.create(b"f");
    let [a, b] = &nodes.stores[..] else { panic!() };
    let (file_a, file_b) = (a.file(ino).unwrap(), b.file(ino).unwrap());
    let written = bytes(4096, 1, true);
    a.write(&file_a, 0, &written).unwrap();
    // Commits, and looks at no file.
    a.sync_all().unwrap();
    b.truncate(&file_b, 50).unwrap();
    assert_eq!(a.seek(&file_a, 0, Seek::Hole).unwrap(), Some(50));
    assert!(read(a, &file_a) == written[..50]);
}

fn a_commit_of_a_small_file_keeps_the_extents_of_another_session(mut nodes: Nodes) {
    nodes.grow_to(2);
    let ino = nodes.create(b"f");
    let [a, b] = &nodes.stores[..] else { panic!() };
    let (file_a, file_b) = (a.file(ino).unwrap(), b.file(ino).unwrap());
    let mut expected = Vec::new();
    // Both have loaded the map before the other one writes.
    for (number, (store, file)) in [(a, &file_a), (b, &file_b), (a, &file_a), (b, &file_b)]
        .into_iter()
        .enumerate()
    {
        let data = bytes(4096, number as u8, true);
        write(store, file, number as u64 * 8192, &data);
        lay(&mut expected, number * 8192, &data);
    }
    nodes.assert_contents(ino, &expected);
    nodes.assert_usage(&[ino]);
}

fn a_fold_keeps_records_that_it_has_not_seen(mut nodes: Nodes) {
    nodes.grow_to(2);
    let ino = nodes.create(b"f");
    let [a, b] = &nodes.stores[..] else { panic!() };
    let (file_a, file_b) = (a.file(ino).unwrap(), b.file(ino).unwrap());
    let mut expected = Vec::new();
    for number in 0..150 {
        let (store, file) = if number % 2 == 0 {
            (a, &file_a)
        } else {
            (b, &file_b)
        };
        let data = bytes(300, number as u8, true);
        write(store, file, number as u64 * 400, &data);
        lay(&mut expected, number * 400, &data);
    }
    let records = a.namespace().contents(ino).unwrap().records.len();
    assert!(records < 100, "folded meanwhile, but {records} are left");
    nodes.assert_contents(ino, &expected);
    nodes.assert_usage(&[ino]);
}

fn a_writer_of_a_lower_part_does_not_shrink_the_file(mut nodes: Nodes) {
    nodes.grow_to(2);
    let ino = nodes.create(b"f");
    let [a, b] = &nodes.stores[..] else { panic!() };
    let (file_a, file_b) = (a.file(ino).unwrap(), b.file(ino).unwrap());
    write(b, &file_b, 50_000, b"behind");
    write(a, &file_a, 0, b"before");
    let mut expected = Vec::new();
    lay(&mut expected, 50_000, b"behind");
    lay(&mut expected, 0, b"before");
    nodes.assert_contents(ino, &expected);
}

fn disjoint_writes_inside_one_chunk_all_survive(mut nodes: Nodes) {
    nodes.grow_to(2);
    let ino = nodes.create(b"f");
    let [a, b] = &nodes.stores[..] else { panic!() };
    let (file_a, file_b) = (a.file(ino).unwrap(), b.file(ino).unwrap());
    let mut expected = bytes(4096, 1, true);
    write(a, &file_a, 0, &expected);
    // Most of the chunk, which one session alone would merge with the rest.
    let (front, back) = (bytes(3000, 2, true), bytes(1000, 3, true));
    a.write(&file_a, 0, &front).unwrap();
    b.write(&file_b, 3050, &back).unwrap();
    b.sync(&file_b).unwrap();
    a.sync(&file_a).unwrap();
    lay(&mut expected, 0, &front);
    lay(&mut expected, 3050, &back);
    nodes.assert_contents(ino, &expected);
    nodes.assert_usage(&[ino]);
}

fn settling_does_not_hide_what_another_session_committed_meanwhile(mut nodes: Nodes) {
    nodes.grow_to(2);
    let ino = nodes.create(b"f");
    let [a, b] = &nodes.stores[..] else { panic!() };
    let (file_a, file_b) = (a.file(ino).unwrap(), b.file(ino).unwrap());
    let mut expected = bytes(100_000, 1, true);
    write(a, &file_a, 0, &expected);
    let settle = SettleOptions {
        workers: 1,
        effort: shale_codec::Effort::Dense,
        force: true,
        rewrite: true,
        pace: &|_| true,
    };
    let mut batch = a.settle_batch();
    batch.add(&file_a, &[], &settle).unwrap();
    let data = bytes(700, 9, true);
    write(b, &file_b, 40_000, &data);
    lay(&mut expected, 40_000, &data);
    for outcome in batch.commit() {
        outcome.unwrap();
    }
    nodes.assert_contents(ino, &expected);
    nodes.assert_usage(&[ino]);
}

fn rewriting_a_pack_does_not_hide_what_another_session_committed_meanwhile(mut nodes: Nodes) {
    nodes.grow_to(1);
    let disk = FaultDisk::new(nodes.dir.path()).unwrap();
    let session = nodes.session();
    nodes.stores.insert(0, store_on(disk.backing(), session));
    let ino = nodes.create(b"f");
    let [a, b] = &nodes.stores[..] else { panic!() };
    let file_a = a.file(ino).unwrap();
    let mut expected = bytes(60_000, 1, true);
    write(a, &file_a, 0, &expected);
    a.volume.frames.packs.roll();
    a.sync_all().unwrap();
    let pack = *a.volume.frames.packs.live().keys().next().unwrap();
    let data = bytes(700, 9, true);
    lay(&mut expected, 40_000, &data);
    // Between the copies and their use, when they are made durable.
    let (copied, written) = mpsc::channel();
    let (done, resume) = mpsc::channel();
    let (copied, resume) = (Mutex::new(Some(copied)), Mutex::new(resume));
    disk.rule(move |step, _, _| {
        if step == Step::Sync
            && let Some(copied) = copied.lock().unwrap().take()
        {
            copied.send(()).unwrap();
            resume.lock().unwrap().recv().unwrap();
        }
        None
    });
    std::thread::scope(|scope| {
        let data = &data;
        let other = scope.spawn(move || {
            written.recv().unwrap();
            let file_b = b.file(ino).unwrap();
            write(b, &file_b, 40_000, data);
            b.close(file_b);
            done.send(()).unwrap();
        });
        let mut rewriter = crate::gc::Rewriter::new(&a.volume, &a.files);
        rewriter.rewrite(pack).unwrap();
        other.join().unwrap();
    });
    disk.heal();
    nodes.assert_contents(ino, &expected);
    nodes.assert_usage(&[ino]);
}

fn a_pack_that_another_session_still_counts_is_not_deleted(mut nodes: Nodes) {
    nodes.grow_to(2);
    let ino = nodes.create(b"f");
    let [a, b] = &nodes.stores[..] else { panic!() };
    let (file_a, file_b) = (a.file(ino).unwrap(), b.file(ino).unwrap());
    let mut expected = bytes(60_000, 1, true);
    write(a, &file_a, 0, &expected);
    // The other session frees most of the pack of the first, in several ways.
    for round in 0..20 {
        let data = bytes(59_000, 2 + round, true);
        write(b, &file_b, 0, &data);
        lay(&mut expected, 0, &data);
        b.volume.frames.packs.roll();
        a.volume.frames.packs.roll();
        b.sync_all().unwrap();
        a.sync_all().unwrap();
        if round % 5 == 4 {
            nodes.assert_usage(&[ino]);
        }
    }
    nodes.assert_contents(ino, &expected);
    nodes.assert_usage(&[ino]);
}

fn joining_leaves_the_pack_alone_that_a_live_session_is_filling(mut nodes: Nodes) {
    nodes.grow_to(1);
    let ino = nodes.create(b"f");
    let file = nodes.stores[0].file(ino).unwrap();
    let expected = bytes(30_000, 1, true);
    // A frame in a pack of which the index knows nothing yet.
    let pin = {
        let volume = &nodes.stores[0].volume;
        let spec = crate::frame::FrameSpec {
            kind: shale_codec::FrameKind::Data,
            ino,
            offset: 0,
            hint: shale_codec::Hint::Unknown,
            effort: shale_codec::Effort::Fast,
        };
        let mut encoder = crate::frame::FrameEncoder::new();
        volume
            .frames
            .append(&mut encoder, &spec, &expected)
            .unwrap()
    };
    let second = nodes.join();
    for _ in 0..3 {
        second.sync_all().unwrap();
    }
    let (part, _pin) = pin;
    assert!(nodes.dir.path().join(part.pack.path()).exists());
    write(&nodes.stores[0], &file, 0, &expected);
    nodes.assert_contents(ino, &expected);
}

fn joining_leaves_an_orphan_alone_that_another_session_has_open(mut nodes: Nodes) {
    nodes.grow_to(2);
    let ino = nodes.create(b"f");
    let expected = bytes(30_000, 1, true);
    let held = nodes.stores[1].file(ino).unwrap();
    write(&nodes.stores[1], &held, 0, &expected);
    nodes.stores[0].namespace().unlink(ROOT, b"f").unwrap();
    nodes.stores[0].release_orphan(ino);
    nodes.join();
    for _ in 0..3 {
        for store in &nodes.stores {
            store.sync_all().unwrap();
        }
    }
    assert!(read(&nodes.stores[1], &held) == expected);
    assert_eq!(nodes.stores[1].stat(ino).unwrap().inode.nlink, 0);
    // When the last user has gone, it is freed.
    nodes.stores[1].close(held);
    nodes.stores[1].release_orphan(ino);
    for _ in 0..6 {
        for store in &nodes.stores {
            store.sync_all().unwrap();
        }
    }
    let (orphans, _) = nodes.stores[0].namespace().orphans().unwrap();
    assert_eq!(orphans, []);
    nodes.assert_usage(&[]);
}

/// Generates for each scenario a test that it holds, and one that it fails where the stores do not
/// know of each other.
macro_rules! scenarios {
    ($($name:ident),* $(,)?) => {
        mod aware {
            $(
                #[test]
                fn $name() {
                    super::$name(super::Nodes::new(true));
                }
            )*
        }

        mod unaware {
            $(
                #[test]
                #[should_panic]
                fn $name() {
                    super::$name(super::Nodes::new(false));
                }
            )*
        }
    };
}

scenarios!(
    a_commit_of_a_small_file_keeps_the_extents_of_another_session,
    a_fold_keeps_records_that_it_has_not_seen,
    a_writer_of_a_lower_part_does_not_shrink_the_file,
    disjoint_writes_inside_one_chunk_all_survive,
    settling_does_not_hide_what_another_session_committed_meanwhile,
    rewriting_a_pack_does_not_hide_what_another_session_committed_meanwhile,
    a_pack_that_another_session_still_counts_is_not_deleted,
    joining_leaves_the_pack_alone_that_a_live_session_is_filling,
    joining_leaves_an_orphan_alone_that_another_session_has_open,
);

/// A fold between two requests of a reader must not show it a map without its records.
#[test]
fn a_map_is_loaded_from_one_snapshot() {
    let mut nodes = Nodes::new(true);
    nodes.grow_to(1);
    let ino = nodes.create(b"f");
    let mut expected = Vec::new();
    for when in 0..6 {
        let writer = &nodes.stores[0];
        let file = writer.file(ino).unwrap();
        for number in 0..40 {
            let data = bytes(300, number as u8, true);
            write(writer, &file, number as u64 * 400, &data);
            lay(&mut expected, number * 400, &data);
        }
        assert!(!writer.namespace().contents(ino).unwrap().records.is_empty());
        let session = Arc::new(Session {
            kv: nodes.kv.another(),
            aware: true,
            hook: Mutex::default(),
        });
        let reader = store(nodes.dir.path(), Arc::clone(&session) as _);
        let (files, volume) = (Arc::clone(&writer.files), Arc::clone(&writer.volume));
        let mut requests = 0;
        *session.hook.lock().unwrap() = Some(Box::new(move || {
            if requests == when {
                let file = files.open(ino).unwrap();
                let mut encoder = crate::frame::FrameEncoder::new();
                file.lock(&volume).fold(&mut encoder, &[]).unwrap();
            }
            requests += 1;
        }));
        let read_file = reader.file(ino).unwrap();
        assert!(
            read(&reader, &read_file) == expected,
            "folded before request {when}"
        );
        reader.close(read_file);
        writer.close(file);
        *session.hook.lock().unwrap() = None;
    }
}

/// One step of one node, after which it is visible to all.
#[derive(Clone, Debug)]
enum Act {
    Write(u16, u16, u8),
    Truncate(u16),
    Punch(u16, u16),
    Fold,
    Settle,
    /// Rewrites all packs of the node.
    Collect,
    /// Another session begins in its place; `true`: without ending the old one in order.
    Restart(bool),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        10 => (any::<u16>(), 1u16..9000, any::<u8>()).prop_map(|(at, len, seed)| Act::Write(at, len, seed)),
        2 => any::<u16>().prop_map(Act::Truncate),
        2 => (any::<u16>(), any::<u16>()).prop_map(|(at, len)| Act::Punch(at, len)),
        2 => Just(Act::Fold),
        2 => Just(Act::Settle),
        2 => Just(Act::Collect),
        1 => any::<bool>().prop_map(Act::Restart),
    ]
}

fn run(acts: &[(usize, Act)]) {
    let mut nodes = Nodes::new(true);
    nodes.grow_to(3);
    let ino = nodes.create(b"f");
    let mut expected = Vec::new();
    let mut encoder = crate::frame::FrameEncoder::new();
    for (number, act) in acts {
        let number = number % nodes.stores.len();
        let store = &nodes.stores[number];
        let file = store.file(ino).unwrap();
        match *act {
            Act::Write(at, len, seed) => {
                let data = bytes(len.into(), seed, seed % 2 == 0);
                write(store, &file, at.into(), &data);
                lay(&mut expected, at.into(), &data);
            }
            Act::Truncate(size) => {
                store.truncate(&file, size.into()).unwrap();
                expected.resize(size.into(), 0);
            }
            Act::Punch(at, len) => {
                let end = u64::from(at) + u64::from(len);
                store.punch(&file, at.into()..end).unwrap();
                let end = expected.len().min(end as usize);
                if let Some(hole) = expected.get_mut(at.into()..end) {
                    hole.fill(0);
                }
            }
            Act::Fold => file.lock(&store.volume).fold(&mut encoder, &[]).unwrap(),
            Act::Settle => {
                let options = SettleOptions {
                    workers: 1,
                    effort: shale_codec::Effort::Dense,
                    force: true,
                    rewrite: false,
                    pace: &|_| true,
                };
                let settled = store.settler.settle(&file, &[], &options, &super::SIZES);
                settled.unwrap();
            }
            Act::Collect => {
                store.volume.frames.packs.roll();
                store.sync_all().unwrap();
                let mut rewriter = crate::gc::Rewriter::new(&store.volume, &store.files);
                for (pack, live) in store.volume.frames.packs.live() {
                    if live > 0 && store.volume.frames.packs.is_quiet(pack) {
                        rewriter.rewrite(pack).unwrap();
                    }
                }
                store.sync_all().unwrap();
            }
            Act::Restart(lost) => {
                store.close(file);
                let session = nodes.session();
                let old = nodes.stores.remove(number);
                if lost {
                    // Its lease ends before it does.
                    let lease = old.namespace().kv().lease();
                    nodes.kv.expire_lease(lease);
                    let _ = old.shut_down();
                } else {
                    old.shut_down().unwrap();
                }
                drop(old);
                let new = store_on(Arc::new(PosixBacking::new(nodes.dir.path())), session);
                nodes.stores.insert(number, new);
                nodes.assert_contents(ino, &expected);
                continue;
            }
        }
        store.close(file);
        nodes.assert_contents(ino, &expected);
    }
    nodes.assert_usage(&[ino]);
    let namespace = nodes.stores[0].namespace();
    namespace.pass_totals_on().unwrap();
    let totals = namespace.rollup(ROOT).unwrap();
    let inode = namespace.inode(ino).unwrap();
    assert_eq!(
        (totals.raw, totals.stored, totals.files),
        (inode.size, inode.stored, 1)
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_file_of_three_sessions_is_an_array_of_bytes(
        acts in prop::collection::vec((0usize..3, act()), 1..40),
    ) {
        run(&acts);
    }
}

#[test]
fn a_size_that_was_reached_survives_a_punch_before_the_commit() {
    let mut nodes = Nodes::new(true);
    nodes.grow_to(2);
    let ino = nodes.create(b"f");
    let a = &nodes.stores[0];
    let file = a.file(ino).unwrap();
    a.write(&file, 0, &[7; 9000]).unwrap();
    a.punch(&file, 5000..9000).unwrap();
    a.sync(&file).unwrap();
    let mut expected = vec![7; 5000];
    expected.resize(9000, 0);
    nodes.assert_contents(ino, &expected);
}
