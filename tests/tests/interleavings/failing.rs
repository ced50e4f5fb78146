//! A disk that fails once, and memory that is full.

use std::sync::Mutex;

use shale_tests::{Case, Outcome};
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

use crate::bench::{Bench, CHUNK, Survivor};
use crate::disk::Step;
use crate::{Happened, explore_store};

/// Steps that fail, and after how many of their kind at most.
const STEPS: [(Step, u64); 4] = [
    (Step::Create, 2),
    (Step::Write, 12),
    (Step::Sync, 6),
    (Step::SyncDir, 3),
];

fn fail_once(bench: &Bench) {
    let (step, most) = STEPS[thread_rng().gen_range(0..STEPS.len())];
    bench.disk.fail(step, thread_rng().gen_range(0..most));
}

/// What was there when all syncs of a file had returned, and what it held.
struct Synced {
    ino: u64,
    contents: Vec<u8>,
    survivor: Survivor,
}

pub(crate) fn failing(_case: &Case) -> Outcome {
    explore_store(|| {
        let bench = Bench::new();
        let base = [1; CHUNK + 700];
        let files = ["a", "b"].map(|name| bench.written(name, &base));
        let synced = Mutex::new(Vec::new());
        fail_once(&bench);
        thread::scope(|scope| {
            for file in &files {
                let (bench, synced) = (&bench, &synced);
                scope.spawn(move || {
                    let mut contents = base.to_vec();
                    for (round, byte) in [2, 3].into_iter().enumerate() {
                        let at = 600 + round * CHUNK / 2;
                        let len = CHUNK - 300;
                        bench.write(file, at, &vec![byte; len]);
                        contents.resize(contents.len().max(at + len), 0);
                        contents[at..at + len].fill(byte);
                        if let Err(e) = bench.store.sync(file) {
                            assert_eq!(e.errno(), libc::EIO, "{e}");
                            FAILED.note(true);
                            let again = bench.store.sync(file);
                            again.expect("nothing fails twice");
                        }
                        assert!(bench.read(file) == contents, "contents differ");
                    }
                    synced.lock().expect("nobody panics").push(Synced {
                        ino: file.ino(),
                        survivor: bench.survivor(),
                        contents,
                    });
                });
            }
            // New packs have to be begun and sealed.
            scope.spawn(|| bench.store.collect(100));
        });
        bench.disk.heal();
        for file in &files {
            bench.write(file, 0, b"works");
            bench.store.sync(file).expect("the disk works again");
        }
        for taken in synced.into_inner().expect("nobody panics") {
            let left = taken.survivor.contents(&[taken.ino]);
            assert!(left[0] == taken.contents, "not durable after a sync");
        }
        let inodes = files.each_ref().map(|file| file.ino());
        files.into_iter().for_each(|file| bench.store.close(file));
        bench.end(&inodes);
    })?;
    FAILED.report("syncs failed")
}

static FAILED: Happened = Happened::new();

/// Memory for unwritten data is half of it.
const LITTLE: usize = 4 * CHUNK;
const PIECE: usize = 3000;
const PIECES: usize = 3;

/// Several write more than memory can hold. `refused` is what they do when they are refused.
fn fill(bench: &Bench, refused: impl Fn() + Sync) {
    let files = ["a", "b", "c"].map(|name| bench.create(name));
    thread::scope(|scope| {
        for file in &files {
            let (refused, store) = (&refused, &bench.store);
            scope.spawn(move || {
                for piece in 0..PIECES {
                    let (at, bytes) = (piece * PIECE, [1 + piece as u8; PIECE]);
                    while let Err(e) = store.write(file, at as u64, &bytes) {
                        assert_eq!(e.errno(), libc::EIO, "{e}");
                        refused();
                    }
                    let gauges = store.gauges();
                    assert!(gauges.buffer_used <= gauges.buffer_limit, "{gauges:?}");
                }
            });
        }
    });
    let expected: Vec<u8> = (0..PIECES)
        .flat_map(|piece| [1 + piece as u8; PIECE])
        .collect();
    bench.disk.heal();
    for file in files {
        assert!(bench.read(&file) == expected, "contents differ");
        bench.store.close(file);
    }
}

fn inodes(bench: &Bench) -> Vec<u64> {
    let look_up = |name: &str| {
        let found = bench
            .store
            .look_up(interleaved::index::ROOT, name.as_bytes());
        found.expect("it is there").inode.ino
    };
    ["a", "b", "c"].map(look_up).to_vec()
}

static WAITED: Happened = Happened::new();
static REFUSED: Happened = Happened::new();

pub(crate) fn full(_case: &Case) -> Outcome {
    explore_store(|| {
        let bench = Bench::with_memory(LITTLE);
        fill(&bench, || panic!("nothing has failed"));
        WAITED.note(bench.store.counters().waits.get() > 0);
        let inodes = inodes(&bench);
        bench.end(&inodes);
    })?;
    WAITED.report("writers waited")
}

pub(crate) fn full_and_failing(_case: &Case) -> Outcome {
    explore_store(|| {
        let bench = Bench::with_memory(LITTLE);
        fail_once(&bench);
        // Nobody would write behind again before a while: somebody has to ask for it.
        fill(&bench, || {
            REFUSED.note(true);
            drop(bench.store.sync_all());
        });
        let inodes = inodes(&bench);
        bench.end(&inodes);
    })?;
    REFUSED.report("writers were refused")
}
