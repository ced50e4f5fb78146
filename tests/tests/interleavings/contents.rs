//! Many threads change, sync and read one file while it is settled and its packs are collected.

use std::sync::{Arc, LazyLock, Mutex};

use shale_index::extent::{Extent, Place};
use shale_store::{Block, ByteOrder, ElementKind, Error, File, GcState, Region, Settled};
use shale_tests::{Case, Outcome};
use shuttle::thread;

use crate::fixture::{CHUNK, Fixture, Survivor};
use crate::model::{Change, Counts, Model, Progress};
use crate::{Happened, explore_store};

/// Everything happens behind a hole: a reader that has passed it starts read-ahead.
const START: usize = 256 << 10;
const BASE: [u8; 3 * CHUNK] = [b'.'; 3 * CHUNK];

/// Within chunks, across their edges, a whole one, and over what other threads have written.
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

/// The state when a sync had returned, and the changes made before it was called.
struct Synced {
    survivor: Survivor,
    done: Counts<3>,
    begun: Counts<3>,
}

fn make(fixture: &Fixture, file: &Arc<File>, change: Change) {
    match change {
        Change::Write(at, len, byte) => fixture.write(file, START + at, &vec![byte; len]),
        Change::Truncate(size) => {
            let cut = fixture.store.truncate(file, (START + size) as u64);
            cut.expect("the index works");
        }
        Change::Punch(at, len) => {
            let range = (START + at) as u64..(START + at + len) as u64;
            let cut = fixture.store.punch(file, range);
            cut.expect("the index works");
        }
    }
}

fn begin(fixture: &Fixture) -> Arc<File> {
    let file = fixture.create("f");
    fixture.write(&file, START, &BASE);
    fixture.store.sync(&file).expect("the disk works");
    file
}

/// The contents of a file, read from front to back.
fn read(fixture: &Fixture, file: &Arc<File>) -> Vec<u8> {
    let mut out = Vec::new();
    for (at, len) in [(0, START), (START, 2 * BASE.len())] {
        let read = fixture.store.read(file, at as u64, len, &mut out);
        read.expect("it can be read");
    }
    out
}

/// Some threads change a file, one syncs it, one reads it, and the rest runs `others`.
fn change(
    fixture: &Fixture,
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
                    progress.make(number, || make(fixture, file, change));
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..syncs {
                let done = progress.done();
                fixture.store.sync(file).expect("the disk works");
                let taken = Synced {
                    survivor: fixture.survivor(),
                    done,
                    begun: progress.begun(),
                };
                synced.lock().expect("no holder panics").push(taken);
            }
        });
        scope.spawn(|| {
            for _ in 0..reads {
                let done = progress.done();
                let seen = read(fixture, file);
                let allowed = MODEL.allows(&seen, done, progress.begun());
                assert!(allowed, "read what no order of changes leaves");
                let done = progress.done();
                let seen = fixture.store.stat(file.ino()).expect("it is there");
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
    } in synced.into_inner().expect("no holder panics")
    {
        let left = survivor.contents(&ino);
        let allowed = MODEL.may_leave(&left[0][START..], done, begun);
        assert!(allowed, "a sync has returned, and {done:?} is not durable");
    }
}

/// The file has the expected contents, in this session and in the next one.
fn end(fixture: Fixture, file: Arc<File>) {
    let last = read(&fixture, &file);
    assert!(MODEL.allows(&last, ALL, ALL), "not all changes are there");
    let ino = file.ino();
    fixture.store.close(file);
    let next = fixture.end(&[ino]);
    assert!(
        next[0][START..] == last,
        "the next session finds something else"
    );
}

pub(crate) fn shared(_case: &Case) -> Outcome {
    LazyLock::force(&MODEL);
    explore_store(|| {
        let fixture = Fixture::new();
        let file = begin(&fixture);
        change(&fixture, &file, 2, 3, &[]);
        end(fixture, file);
    })
}

static TILED: Happened = Happened::new();

/// Settles the file, most of it as an array.
fn settle(fixture: &Fixture, file: &Arc<File>) {
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
    if let Err(e) = fixture.settle(file, &[array]) {
        // What was to be read has been moved: the settling thread tries again.
        assert!(matches!(e, Error::PackGone { .. }), "{e}");
    }
    let extents = fixture.store.extents_from(file, 0);
    let (extents, _) = extents.expect("the index works");
    let tiled = |extent: &Extent| matches!(extent.place, Place::Tiles(_));
    TILED.note(extents.iter().any(tiled));
}

/// Requests that all packs with garbage be emptied, and waits for it.
pub(crate) fn collect(fixture: &Fixture) {
    fixture.store.request_gc(100);
    while fixture.store.gc_state() == GcState::Running {
        thread::yield_now();
    }
    assert_eq!(fixture.store.gc_state(), GcState::Idle);
}

pub(crate) fn settled(_case: &Case) -> Outcome {
    LazyLock::force(&MODEL);
    explore_store(|| {
        let fixture = Fixture::new();
        let file = begin(&fixture);
        change(&fixture, &file, 1, 2, &[&|| settle(&fixture, &file)]);
        end(fixture, file);
    })?;
    TILED.report("there were tiles")
}

static BOTH: Happened = Happened::new();

/// Two files in one batch; one of them is changed at any moment.
pub(crate) fn batched(_case: &Case) -> Outcome {
    LazyLock::force(&MODEL);
    explore_store(|| {
        let fixture = Fixture::new();
        let file = begin(&fixture);
        let other = fixture.written("other", &BASE);
        let batch = || {
            let mut batch = fixture.store.settle_batch();
            let added = [&file, &other].map(|file| fixture.add(&mut batch, file));
            // What was to be read may have been moved.
            let failed = added.into_iter().filter_map(Result::err);
            failed.for_each(|e| assert!(matches!(e, Error::PackGone { .. }), "{e}"));
            let results = batch.commit();
            let whole = |settled: &Settled| settled.raw > 0 && settled.void == 0;
            BOTH.note(results.len() == 2 && results.iter().flatten().all(whole));
        };
        change(&fixture, &file, 1, 1, &[&batch]);
        assert!(fixture.read(&other) == BASE, "it was not changed");
        let inodes = [file.ino(), other.ino()];
        let last = read(&fixture, &file);
        fixture.store.close(file);
        fixture.store.close(other);
        let next = fixture.end(&inodes);
        assert!(next[0][START..] == last && next[1] == BASE);
    })?;
    BOTH.report("both were settled")
}

static MOVED: Happened = Happened::new();

pub(crate) fn collected(_case: &Case) -> Outcome {
    LazyLock::force(&MODEL);
    explore_store(|| {
        let fixture = Fixture::new();
        let file = begin(&fixture);
        // Some bytes have to be dead for the rest to be moved.
        fixture.write(&file, START + CHUNK, &BASE[..CHUNK]);
        fixture.store.sync(&file).expect("the disk works");
        change(
            &fixture,
            &file,
            1,
            2,
            &[&|| settle(&fixture, &file), &|| collect(&fixture)],
        );
        MOVED.note(fixture.store.counters().packs_rewritten.get() > 0);
        end(fixture, file);
    })?;
    MOVED.report("packs were emptied")
}
