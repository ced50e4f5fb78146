//! A disk that fails once, and memory that is full.

use std::sync::Mutex;

use shale_tests::{Case, Outcome};
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

use crate::disk::Step;
use crate::fixture::{CHUNK, Fixture, Survivor};
use crate::{Happened, errno, explore_store};

/// Steps that fail, and after how many of their kind at most.
const STEPS: [(Step, u64); 4] = [
    (Step::Create, 2),
    (Step::Write, 12),
    (Step::Sync, 6),
    (Step::SyncDir, 3),
];

fn fail_once(fixture: &Fixture) {
    let (step, most) = STEPS[thread_rng().gen_range(0..STEPS.len())];
    fixture.disk.fail(step, thread_rng().gen_range(0..most));
}

/// The state when all syncs of a file had returned, and its contents.
struct Synced {
    ino: u64,
    contents: Vec<u8>,
    survivor: Survivor,
}

pub(crate) fn failing(_case: &Case) -> Outcome {
    explore_store(|| {
        let fixture = Fixture::new();
        let base = [1; CHUNK + 700];
        let files = ["a", "b"].map(|name| fixture.written(name, &base));
        let synced = Mutex::new(Vec::new());
        fail_once(&fixture);
        thread::scope(|scope| {
            for file in &files {
                let (fixture, synced) = (&fixture, &synced);
                scope.spawn(move || {
                    let mut contents = base.to_vec();
                    for (round, byte) in [2, 3].into_iter().enumerate() {
                        let at = 600 + round * CHUNK / 2;
                        let len = CHUNK - 300;
                        fixture.write(file, at, &vec![byte; len]);
                        contents.resize(contents.len().max(at + len), 0);
                        contents[at..at + len].fill(byte);
                        if let Err(e) = fixture.store.sync(file) {
                            assert_eq!(errno(e), libc::EIO);
                            FAILED.note(true);
                            let again = fixture.store.sync(file);
                            again.expect("nothing fails twice");
                        }
                        assert!(fixture.read(file) == contents, "contents differ");
                    }
                    synced.lock().expect("no holder panics").push(Synced {
                        ino: file.ino(),
                        survivor: fixture.survivor(),
                        contents,
                    });
                });
            }
            // New packs have to be begun and sealed.
            scope.spawn(|| fixture.store.request_gc(100));
        });
        fixture.disk.heal();
        for file in &files {
            fixture.write(file, 0, b"works");
            fixture.store.sync(file).expect("the disk works again");
        }
        for taken in synced.into_inner().expect("no holder panics") {
            let left = taken.survivor.contents(&[taken.ino]);
            assert!(left[0] == taken.contents, "not durable after a sync");
        }
        let inodes = files.each_ref().map(|file| file.ino());
        files.into_iter().for_each(|file| fixture.store.close(file));
        fixture.end(&inodes);
    })?;
    FAILED.report("syncs failed")
}

static FAILED: Happened = Happened::new();

/// Memory for unwritten data is half of it.
const LITTLE: usize = 4 * CHUNK;
const PIECE: usize = 3000;
const PIECES: usize = 3;

/// Several threads write more than memory can hold. They call `refused` when a write is refused.
fn fill(fixture: &Fixture, refused: impl Fn() + Sync) {
    let files = ["a", "b", "c"].map(|name| fixture.create(name));
    thread::scope(|scope| {
        for file in &files {
            let (refused, store) = (&refused, &fixture.store);
            scope.spawn(move || {
                for piece in 0..PIECES {
                    let (at, bytes) = (piece * PIECE, [1 + piece as u8; PIECE]);
                    while let Err(e) = store.write(file, at as u64, &bytes) {
                        assert_eq!(errno(e), libc::EIO);
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
    fixture.disk.heal();
    for file in files {
        assert!(fixture.read(&file) == expected, "contents differ");
        fixture.store.close(file);
    }
}

fn inodes(fixture: &Fixture) -> Vec<u64> {
    let look_up = |name: &str| {
        let found = fixture.store.look_up(shale_index::ROOT, name.as_bytes());
        found.expect("it is there").inode.ino
    };
    ["a", "b", "c"].map(look_up).to_vec()
}

static WAITED: Happened = Happened::new();
static REFUSED: Happened = Happened::new();

pub(crate) fn full(_case: &Case) -> Outcome {
    explore_store(|| {
        let fixture = Fixture::with_memory(LITTLE);
        fill(&fixture, || panic!("nothing has failed"));
        WAITED.note(fixture.store.counters().waits.get() > 0);
        let inodes = inodes(&fixture);
        fixture.end(&inodes);
    })?;
    WAITED.report("writers waited")
}

pub(crate) fn full_and_failing(_case: &Case) -> Outcome {
    explore_store(|| {
        let fixture = Fixture::with_memory(LITTLE);
        fail_once(&fixture);
        // The committer would wait a while before it writes again, unless asked to.
        fill(&fixture, || {
            REFUSED.note(true);
            drop(fixture.store.sync_all());
        });
        let inodes = inodes(&fixture);
        fixture.end(&inodes);
    })?;
    REFUSED.report("writers were refused")
}
