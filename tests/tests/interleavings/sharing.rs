//! Two stores over one disk and one index change, settle, collect and read one file.

use std::sync::{Arc, LazyLock};

use shale_index::ROOT;
use shale_index::engine::ReferenceKv;
use shale_index::kv::Limits;
use shale_store::{Error, File};
use shale_tests::{Case, Outcome};
use shuttle::thread;

use crate::disk::Disk;
use crate::fixture::{CHUNK, Fixture};
use crate::model::{Change, Counts, Model, Progress};
use crate::{Happened, explore_store};

const BASE: [u8; 3 * CHUNK] = [b'.'; 3 * CHUNK];

/// What the engine over etcd takes.
const LIMITS: Limits = Limits {
    compares: 32,
    ops: 95,
    bytes: 1_400_000,
};

/// Those of the first two threads are one store's, the last thread's another one's. Each change
/// stays within a chunk, so that it is committed as a whole; they share chunks and overlap,
/// and some are large enough that one store alone would merge the chunk with its older bytes.
const CHANGES: [&[Change]; 3] = [
    &[
        Change::Write(100, 2500, b'a'),
        Change::Write(CHUNK + 500, 1500, b'b'),
    ],
    &[Change::Write(2 * CHUNK, CHUNK, b'c')],
    &[
        Change::Write(2300, 1000, b'd'),
        Change::Truncate(2 * CHUNK + 50),
    ],
];
const ALL: Counts<3> = [2, 1, 2];

static MODEL: LazyLock<Model<3>> = LazyLock::new(|| Model::new(&BASE, &CHANGES));

fn make(node: &Fixture, file: &Arc<File>, change: Change) {
    match change {
        Change::Write(at, len, byte) => node.write(file, at, &vec![byte; len]),
        Change::Truncate(size) => {
            let cut = node.store.truncate(file, size as u64);
            cut.expect("the index works");
        }
        Change::Punch(at, len) => {
            let cut = node.store.punch(file, at as u64..(at + len) as u64);
            cut.expect("the index works");
        }
    }
    node.store.sync(file).expect("the disk works");
}

/// What a store shows to one that opens the file now.
fn look(node: &Fixture, ino: u64) -> Vec<u8> {
    let file = node.store.file(ino).expect("it is there");
    let seen = node.read(&file);
    node.store.close(file);
    seen
}

static SETTLED: Happened = Happened::new();

fn settle(node: &Fixture, ino: u64) {
    let file = node.store.file(ino).expect("it is there");
    match node.settle(&file, &[]) {
        Ok(settled) => SETTLED.note(settled.raw > 0),
        // The other store has moved the frames, or folds all the time.
        Err(e) => assert!(
            matches!(
                e,
                Error::PackGone { .. } | Error::Index(shale_index::Error::Conflict)
            ),
            "{e}"
        ),
    }
    node.store.close(file);
}

fn run(others: bool) {
    let (disk, kv) = (Disk::new(), ReferenceKv::shared(LIMITS));
    let a = Fixture::joined(&disk, &kv);
    let b = Fixture::joined(&disk, &kv);
    let file_a = a.written("f", &BASE);
    let ino = file_a.ino();
    let file_b = b.store.file(ino).expect("it is there");
    let progress = Progress::new();
    thread::scope(|scope| {
        for (number, changes) in CHANGES.iter().enumerate() {
            let (node, file) = if number < 2 {
                (&a, &file_a)
            } else {
                (&b, &file_b)
            };
            let progress = &progress;
            scope.spawn(move || {
                for &change in *changes {
                    progress.make(number, || make(node, file, change));
                }
            });
        }
        let (a, b, progress) = (&a, &b, &progress);
        scope.spawn(move || {
            for node in [a, b] {
                let done = progress.done();
                let seen = look(node, ino);
                let allowed = MODEL.allows(&seen, done, progress.begun());
                assert!(allowed, "read what no order of changes leaves");
            }
        });
        if others {
            scope.spawn(move || settle(b, ino));
            scope.spawn(move || crate::contents::collect(a));
        }
    });
    let last = look(&a, ino);
    assert!(MODEL.allows(&last, ALL, ALL), "not all changes are there");
    assert!(look(&b, ino) == last, "the stores see different bytes");
    a.store.close(file_a);
    b.store.close(file_b);
    b.store.shut_down().expect("the disk works");
    a.assert_shared(&[ino]);
    assert!(look(&a, ino) == last, "folding changes nothing");
    a.store.shut_down().expect("the disk works");
}

pub(crate) fn written(_case: &Case) -> Outcome {
    LazyLock::force(&MODEL);
    explore_store(|| run(false))
}

pub(crate) fn settled_and_collected(_case: &Case) -> Outcome {
    LazyLock::force(&MODEL);
    explore_store(|| run(true))?;
    SETTLED.report("something was settled")
}

static NAMELESS: Happened = Happened::new();

/// One store removes a file that the other one has open and goes on writing.
fn remove() {
    let (disk, kv) = (Disk::new(), ReferenceKv::shared(LIMITS));
    let a = Fixture::joined(&disk, &kv);
    let b = Fixture::joined(&disk, &kv);
    let file_a = a.written("f", &BASE);
    let ino = file_a.ino();
    let file_b = b.store.file(ino).expect("it is there");
    thread::scope(|scope| {
        let (a, b) = (&a, &b);
        scope.spawn(move || {
            a.store.unlink(ROOT, b"f").expect("it is there");
            a.store.close(file_a);
            a.store.release_orphan(ino);
            a.store.sync_all().expect("the disk works");
        });
        scope.spawn(move || {
            let (orphans, _) = b.store.committed().orphans().expect("the index works");
            NAMELESS.note(!orphans.is_empty());
            b.write(&file_b, 10, b"written");
            b.store.sync(&file_b).expect("the disk works");
            b.store.sync_all().expect("the disk works");
            let mut expected = BASE.to_vec();
            expected[10..17].copy_from_slice(b"written");
            assert!(b.read(&file_b) == expected, "it is open");
            b.store.close(file_b);
            b.store.release_orphan(ino);
        });
    });
    // Each round looks for orphans once, and every store has to look before one is purged.
    let orphans = || a.store.committed().orphans().expect("the index works").0;
    while !orphans().is_empty() {
        for node in [&a, &b] {
            node.store.sync_all().expect("the disk works");
        }
        // Other threads may have it open for a moment.
        thread::yield_now();
    }
    b.store.shut_down().expect("the disk works");
    a.assert_shared(&[]);
    a.store.shut_down().expect("the disk works");
}

pub(crate) fn removed(_case: &Case) -> Outcome {
    explore_store(remove)?;
    NAMELESS.report("it had no name when it was written")
}
