//! Settling of unusual files.

use std::sync::atomic::{AtomicU64, Ordering};

use shale_backing::faults::{FaultDisk, Step};
use shale_codec::{ByteOrder, ElementKind};
use shale_index::ROOT;
use shale_index::extent::{Extent, Place};

use super::window::WINDOW;
use super::*;
use crate::Store;
use crate::tests::{node, options, os_error};

struct Bench {
    disk: Arc<FaultDisk>,
    store: Store,
    _dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let disk = FaultDisk::new(dir.path()).unwrap();
        let store = Store::open_on(disk.backing(), &options()).unwrap();
        Self {
            disk,
            store,
            _dir: dir,
        }
    }

    fn file(&self, name: &str) -> Arc<File> {
        let namespace = self.store.namespace();
        let inode = namespace.create(ROOT, name.as_bytes(), &node()).unwrap();
        self.store.file(inode.ino).unwrap()
    }

    fn write(&self, file: &Arc<File>, offset: u64, bytes: &[u8]) {
        self.store.write(file, offset, bytes).unwrap();
        self.store.sync(file).unwrap();
    }

    fn phase(&self, file: &File) -> Phase {
        self.store.namespace().inode(file.ino).unwrap().phase
    }
}

fn how(pace: &(dyn Fn(u64) -> bool + Sync)) -> SettleOptions<'_> {
    SettleOptions {
        workers: 1,
        effort: Effort::Dense,
        force: false,
        rewrite: false,
        pace,
    }
}

/// Floats that compress well.
fn smooth(count: u32) -> Vec<u8> {
    (0..count)
        .flat_map(|n| (n as f32 / 7.0).to_le_bytes())
        .collect()
}

fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}

/// One array of floats, from the end of a header to the end of the file.
fn floats(size: u64) -> [Region; 1] {
    [Region {
        offset: 128,
        records: (size - 128) / 4,
        record: 4,
        blocks: vec![Block {
            at: 0,
            width: 4,
            kind: ElementKind::Float,
            order: ByteOrder::Little,
            dims: Vec::new(),
        }],
    }]
}

#[test]
fn holes_of_exabytes_are_neither_walked_nor_cut() {
    let bench = Bench::new();
    let file = bench.file("f");
    let (size, island) = (7 << 60, 3 << 60);
    let bytes = smooth(3 << 19);
    bench.store.truncate(&file, size).unwrap();
    bench.write(&file, 0, &[7; 128]);
    bench.write(&file, island, &bytes);
    bench.write(&file, size - 1, b"x");
    let calls = AtomicU64::new(0);
    let pace = |_| calls.fetch_add(1, Ordering::Relaxed) < 10_000;
    let settled = bench
        .store
        .settle(&file, &floats(size), &how(&pace))
        .unwrap();
    assert_eq!(settled.raw, 128 + bytes.len() as u64 + 1);
    assert!(!settled.stopped);
    assert_eq!(bench.phase(&file), Phase::Settled);
    // Somewhere in the island there is a whole array.
    let volume = &*bench.store.volume;
    let end = island + bytes.len() as u64;
    let extents = file.lock(volume).extents(island..end);
    let tiles = |extent: &Extent| matches!(extent.place, Place::Tiles(_));
    assert!(extents.unwrap().iter().any(tiles));
    let mut out = Vec::new();
    bench
        .store
        .read(&file, island, bytes.len(), &mut out)
        .unwrap();
    assert!(out == bytes, "contents differ");
}

#[test]
fn a_stop_is_seen_where_nothing_is_to_be_done() {
    let bench = Bench::new();
    let file = bench.file("f");
    bench.write(&file, 0, &smooth(50_000));
    let settled = bench.store.settle(&file, &[], &how(&|_| true)).unwrap();
    assert!(settled.raw > 0 && !settled.stopped);
    let again = bench.store.settle(&file, &[], &how(&|_| false)).unwrap();
    assert!(again.stopped);
}

#[test]
fn a_file_is_judged_by_all_of_it() {
    let bench = Bench::new();
    let far = 2 * WINDOW;
    // The first window is noise, the rest is not.
    let file = bench.file("mixed");
    bench.write(&file, 0, &noise(100_000));
    bench.write(&file, far, &smooth(500_000));
    let settled = bench.store.settle(&file, &[], &how(&|_| true)).unwrap();
    assert!(!settled.incompressible && settled.after < settled.before);
    assert_eq!(bench.phase(&file), Phase::Settled);
    // The first window is a hole.
    let file = bench.file("hole");
    bench.write(&file, far, &noise(1_000_000));
    let settled = bench.store.settle(&file, &[], &how(&|_| true)).unwrap();
    assert!(settled.incompressible);
    assert_eq!(settled.raw, 0);
}

#[test]
fn a_rewrite_that_would_fill_the_device_is_not_begun() {
    let bench = Bench::new();
    let file = bench.file("f");
    let bytes = vec![7; 8 << 20];
    bench.write(&file, 0, &bytes);
    let volume = &*bench.store.volume;
    let rewrite = SettleOptions {
        effort: Effort::None,
        force: true,
        rewrite: true,
        ..how(&|_| true)
    };
    // As large as the disk was when the store was opened.
    let reserve = crate::reserve(1 << 50);
    // A file that fits on no device makes the store ask this one again.
    bench.disk.set_space(reserve + (4 << 20));
    assert!(volume.space.admit(&*volume.backing, 1 << 60, 0).is_err());
    let settled = bench.store.settle(&file, &[], &rewrite).unwrap();
    assert!(settled.stopped);
    assert_eq!(settled.raw, 0);
    bench.disk.set_space(reserve + (64 << 20));
    let settled = bench.store.settle(&file, &[], &rewrite).unwrap();
    assert!(!settled.stopped && settled.after >= bytes.len() as u64);
}

#[test]
fn what_was_in_memory_at_first_does_not_count_as_settled() {
    let bench = Bench::new();
    let file = bench.file("f");
    bench.write(&file, 0, &smooth(50_000));
    bench.store.write(&file, 400_000, &smooth(1000)).unwrap();
    // Committed while the rest is being encoded.
    let pace = |bytes| bytes == 0 || bench.store.sync(&file).is_ok();
    let settled = bench.store.settle(&file, &[], &how(&pace)).unwrap();
    assert!(settled.raw > 0 && settled.changed);
    assert_eq!(bench.phase(&file), Phase::Stored);
    let settled = bench.store.settle(&file, &[], &how(&pace)).unwrap();
    assert!(!settled.changed);
    assert_eq!(bench.phase(&file), Phase::Settled);
}

#[test]
fn packs_are_balanced_over_many_small_files() {
    let bench = Bench::new();
    let options = SettleOptions {
        workers: 4,
        force: true,
        ..how(&|_| true)
    };
    let packs = || bench.store.volume.frames.packs.live();
    let files: Vec<_> = (0..300)
        .map(|number| {
            let file = bench.file(&number.to_string());
            let len = 100 + number * number / 40;
            bench.store.write(&file, 0, &noise(len)).unwrap();
            file
        })
        .collect();
    bench.store.sync_all().unwrap();
    let older = packs();
    for file in &files {
        let settled = bench.store.settle(file, &[], &options).unwrap();
        assert!(settled.raw > 0);
    }
    let mut sizes = packs();
    sizes.retain(|pack, live| !older.contains_key(pack) && *live > 0);
    let sizes: Vec<u64> = sizes.into_values().collect();
    assert_eq!(sizes.len(), 4, "a pack for each worker");
    let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
    assert!(*most as f64 <= *least as f64 * 1.05, "{sizes:?}");
}

/// Files that settle, written and durable.
fn small_files(bench: &Bench, count: u32) -> Vec<(Arc<File>, Vec<u8>)> {
    let files = (0..count)
        .map(|number| {
            let file = bench.file(&number.to_string());
            let bytes = smooth(20_000 + number);
            bench.store.write(&file, 0, &bytes).unwrap();
            (file, bytes)
        })
        .collect();
    bench.store.sync_all().unwrap();
    files
}

fn contents(bench: &Bench, file: &Arc<File>) -> Vec<u8> {
    let mut out = Vec::new();
    bench.store.read(file, 0, 1 << 20, &mut out).unwrap();
    out
}

#[test]
fn files_of_a_batch_share_one_sync() {
    let bench = Bench::new();
    let files = small_files(&bench, 40);
    let lane = |path: &std::path::Path| path.extension().is_some_and(|e| e == "pack");
    let syncs = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&syncs);
    bench.disk.rule(move |step, path, _| {
        if step == Step::Sync && lane(path) {
            counted.fetch_add(1, Ordering::Relaxed);
        }
        None
    });
    let mut batch = bench.store.settle_batch();
    for (file, _) in &files {
        batch.add(file, &[], &how(&|_| true)).unwrap();
        assert_eq!(
            bench.phase(file),
            Phase::Stored,
            "used before it is durable"
        );
    }
    assert!(!batch.is_full());
    let results = batch.commit();
    // The committer has its own rounds, twice a second.
    let syncs = syncs.load(Ordering::Relaxed);
    assert!((1..=10).contains(&syncs), "{syncs} syncs");
    assert_eq!(results.len(), files.len());
    for ((file, bytes), result) in files.iter().zip(results) {
        let settled = result.unwrap();
        assert!(settled.raw == bytes.len() as u64 && settled.after < settled.before);
        assert_eq!(bench.phase(file), Phase::Settled);
        assert!(contents(&bench, file) == *bytes, "contents differ");
    }
}

#[test]
fn a_file_that_changes_while_its_batch_waits_keeps_what_was_written() {
    let bench = Bench::new();
    let files = small_files(&bench, 4);
    let mut batch = bench.store.settle_batch();
    for (file, _) in &files {
        batch.add(file, &[], &how(&|_| true)).unwrap();
    }
    bench.write(&files[1].0, 7, b"stored");
    bench.store.write(&files[2].0, 7, b"in memory").unwrap();
    let results = batch.commit();
    for (number, ((file, bytes), result)) in files.iter().zip(results).enumerate() {
        let settled = result.unwrap();
        let mut bytes = bytes.clone();
        let changed = match number {
            1 => &b"stored"[..],
            2 => b"in memory",
            _ => b"",
        };
        bytes[7..7 + changed.len()].copy_from_slice(changed);
        assert!(contents(&bench, file) == bytes, "contents of {number}");
        assert_eq!(settled.changed, !changed.is_empty(), "{number}");
        let expected = if changed.is_empty() {
            Phase::Settled
        } else {
            Phase::Stored
        };
        assert_eq!(bench.phase(file), expected, "{number}");
    }
}

#[test]
fn a_batch_that_cannot_be_synced_leaves_its_files_as_they_were() {
    let bench = Bench::new();
    let files = small_files(&bench, 3);
    let mut batch = bench.store.settle_batch();
    for (file, _) in &files {
        batch.add(file, &[], &how(&|_| true)).unwrap();
    }
    bench.disk.rule(|step, path, _| {
        let is_pack = path.extension().is_some_and(|e| e == "pack");
        (step == Step::Sync && is_pack).then(|| std::io::Error::from_raw_os_error(libc::EIO))
    });
    let results = batch.commit();
    bench.disk.heal();
    for ((file, bytes), result) in files.iter().zip(results) {
        assert_eq!(os_error(&result.unwrap_err()), Some(libc::EIO));
        assert_eq!(bench.phase(file), Phase::Stored);
        assert!(contents(&bench, file) == *bytes, "contents differ");
        let settled = bench.store.settle(file, &[], &how(&|_| true)).unwrap();
        assert!(settled.raw > 0);
    }
}

/// The table in front of the bytes of a gathered frame has any length.
#[test]
fn numbers_without_a_known_layout_become_denser() {
    let bench = Bench::new();
    let file = bench.file("f");
    let noise = noise(40_000);
    let number = |(n, noise): (usize, &u8)| {
        let value = 280.0 + 20.0 * (n as f32 / 900.0).sin() + f32::from(*noise) / 2000.0;
        ((value * 100.0).round() / 100.0).to_le_bytes()
    };
    let bytes: Vec<u8> = noise.iter().enumerate().flat_map(number).collect();
    bench.write(&file, 0, &bytes);
    let settled = bench.store.settle(&file, &[], &how(&|_| true)).unwrap();
    assert!(settled.after < 40_000, "{settled:?}");
}
