//! One file that many change, sync and read; while it is settled, and its packs are collected.

use std::sync::{Arc, LazyLock, Mutex};

use interleaved::index::extent::{Extent, Place};
use interleaved::{Block, ByteOrder, Collecting, ElementKind, File, Region, Settled};
use shale_tests::{Case, Outcome};
use shuttle::thread;

use crate::bench::{Bench, CHUNK, Survivor};
use crate::model::{Change, Counts, Model, Progress};
use crate::{Happened, explore_store};

/// Everything happens behind a hole: whoever has read it is followed by those who decode ahead.
const START: usize = 256 << 10;
const BASE: [u8; 3 * CHUNK] = [b'.'; 3 * CHUNK];

/// Within chunks, over their edges, all of one, and over what others have written.
const CHANGES: [&[Change]; 3] = [
    &[
        Change::Write(100, CHUNK + 1000, b'a'),
        Change::Write(2 * CHUNK - 200, 3000, b'b'),
    ],
    &[
        Change::Write(CHUNK, CHUNK, b'c'),
        Change::Write(0, 200, b'd'),
    ],
    &[Change::Truncate(CHUNK + 1900), Change::Punch(1000, CHUNK)],
];
const ALL: Counts<3> = [2, 2, 2];

static MODEL: LazyLock<Model<3>> = LazyLock::new(|| Model::new(&BASE, &CHANGES));

/// What was there when a sync had returned, and what had been done before it was called.
struct Synced {
    survivor: Survivor,
    done: Counts<3>,
    begun: Counts<3>,
}

fn make(bench: &Bench, file: &Arc<File>, change: Change) {
    match change {
        Change::Write(at, len, byte) => bench.write(file, START + at, &vec![byte; len]),
        Change::Truncate(size) => {
            let cut = bench.store.truncate(file, (START + size) as u64);
            cut.expect("the index works");
        }
        Change::Punch(at, len) => {
            let cut = bench.store.punch(file, (START + at) as u64, len as u64);
            cut.expect("the index works");
        }
    }
}

fn begin(bench: &Bench) -> Arc<File> {
    let file = bench.create("f");
    bench.write(&file, START, &BASE);
    bench.store.sync(&file).expect("the disk works");
    file
}

/// What is in a file, read from front to back.
fn read(bench: &Bench, file: &Arc<File>) -> Vec<u8> {
    let mut out = Vec::new();
    for (at, len) in [(0, START), (START, 2 * BASE.len())] {
        let read = bench.store.read(file, at as u64, len, &mut out);
        read.expect("it can be read");
    }
    out
}

/// Some change a file, one syncs it, one reads it, and `others` do what they like.
fn change(
    bench: &Bench,
    file: &Arc<File>,
    syncs: usize,
    reads: usize,
    others: &[&(dyn Fn() + Sync)],
) {
    let progress = Progress::new();
    let synced = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for (number, changes) in CHANGES.iter().enumerate() {
            let progress = &progress;
            scope.spawn(move || {
                for &change in *changes {
                    progress.make(number, || make(bench, file, change));
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..syncs {
                let done = progress.done();
                bench.store.sync(file).expect("the disk works");
                let taken = Synced {
                    survivor: bench.survivor(),
                    done,
                    begun: progress.begun(),
                };
                synced.lock().expect("nobody panics").push(taken);
            }
        });
        scope.spawn(|| {
            for _ in 0..reads {
                let done = progress.done();
                let seen = read(bench, file);
                let allowed = MODEL.allows(&seen, done, progress.begun());
                assert!(allowed, "read what nobody can have left");
                let done = progress.done();
                let seen = bench.store.inode(file.ino()).expect("it is there");
                let size = seen.inode.size as usize - START;
                let allowed = MODEL.allows_size(size, done, progress.begun());
                assert!(allowed, "it cannot have {size} bytes");
            }
        });
        for other in others {
            scope.spawn(other);
        }
    });
    let ino = [file.ino()];
    for Synced {
        survivor,
        done,
        begun,
    } in synced.into_inner().expect("nobody panics")
    {
        let left = survivor.contents(&ino);
        let allowed = MODEL.may_leave(&left[0][START..], done, begun);
        assert!(allowed, "a sync has returned, and {done:?} is not durable");
    }
}

/// The file is as it must be, in this session and in the next one.
fn end(bench: Bench, file: Arc<File>) {
    let last = read(&bench, &file);
    assert!(MODEL.allows(&last, ALL, ALL), "not all changes are there");
    let ino = file.ino();
    bench.store.close(file);
    let next = bench.end(&[ino]);
    assert!(
        next[0][START..] == last,
        "the next session finds something else"
    );
}

pub(crate) fn shared(_case: &Case) -> Outcome {
    LazyLock::force(&MODEL);
    explore_store(|| {
        let bench = Bench::new();
        let file = begin(&bench);
        change(&bench, &file, 2, 3, &[]);
        end(bench, file);
    })
}

static TILED: Happened = Happened::new();

/// Settles the file, most of it as an array.
fn settle(bench: &Bench, file: &Arc<File>) {
    let array = Region {
        offset: START as u64,
        records: (CHUNK + 1000) as u64 / 4,
        record: 4,
        blocks: vec![Block {
            at: 0,
            width: 4,
            kind: ElementKind::Float,
            order: ByteOrder::Little,
            dims: Vec::new(),
        }],
    };
    if let Err(e) = bench.settle(file, &[array]) {
        // What was to be read has been moved: whoever settles files tries again.
        assert_eq!(e.errno(), libc::ENOENT, "{e}");
    }
    let extents = bench.store.extents_from(file, 0);
    let (extents, _) = extents.expect("the index works");
    let tiled = |extent: &Extent| matches!(extent.place, Place::Tiles(_));
    TILED.note(extents.iter().any(tiled));
}

/// Asks for all packs to be emptied of which something is dead, and waits for it.
fn collect(bench: &Bench) {
    bench.store.collect(100);
    while bench.store.collecting() == Collecting::Running {
        thread::yield_now();
    }
    assert_eq!(bench.store.collecting(), Collecting::Idle);
}

pub(crate) fn settled(_case: &Case) -> Outcome {
    LazyLock::force(&MODEL);
    explore_store(|| {
        let bench = Bench::new();
        let file = begin(&bench);
        change(&bench, &file, 1, 2, &[&|| settle(&bench, &file)]);
        end(bench, file);
    })?;
    TILED.report("there were tiles")
}

static BOTH: Happened = Happened::new();

/// Two files in one batch, of which one is changed at any moment.
pub(crate) fn batched(_case: &Case) -> Outcome {
    LazyLock::force(&MODEL);
    explore_store(|| {
        let bench = Bench::new();
        let file = begin(&bench);
        let other = bench.written("other", &BASE);
        let batch = || {
            let mut batch = bench.store.settle_batch();
            let added = [&file, &other].map(|file| bench.add(&mut batch, file));
            // What was to be read may have been moved.
            let failed = added.into_iter().filter_map(Result::err);
            failed.for_each(|e| assert_eq!(e.errno(), libc::ENOENT, "{e}"));
            let results = batch.commit();
            let whole = |settled: &Settled| settled.raw > 0 && settled.void == 0;
            BOTH.note(results.len() == 2 && results.iter().flatten().all(whole));
        };
        change(&bench, &file, 1, 1, &[&batch]);
        assert!(bench.read(&other) == BASE, "nobody has changed it");
        let inodes = [file.ino(), other.ino()];
        let last = read(&bench, &file);
        bench.store.close(file);
        bench.store.close(other);
        let next = bench.end(&inodes);
        assert!(next[0][START..] == last && next[1] == BASE);
    })?;
    BOTH.report("both were settled")
}

static MOVED: Happened = Happened::new();

pub(crate) fn collected(_case: &Case) -> Outcome {
    LazyLock::force(&MODEL);
    explore_store(|| {
        let bench = Bench::new();
        let file = begin(&bench);
        // Something has to be dead for the rest to be moved.
        bench.write(&file, START + CHUNK, &BASE[..CHUNK]);
        bench.store.sync(&file).expect("the disk works");
        change(
            &bench,
            &file,
            1,
            2,
            &[&|| settle(&bench, &file), &|| collect(&bench)],
        );
        MOVED.note(bench.store.counters().packs_rewritten.get() > 0);
        end(bench, file);
    })?;
    MOVED.report("packs were emptied")
}
