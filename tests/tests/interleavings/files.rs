//! Files that come and go while others count them, sync and collect.

use std::sync::Arc;
use std::time::Duration;

use shale_index::ROOT;
use shale_store::testing::pass_time;
use shale_store::{File, Store};
use shale_tests::{Case, Outcome};
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

use crate::fixture::{CHUNK, Fixture};
use crate::{Happened, explore_store};

/// How often a chunk is added to the file that stays.
const ROUNDS: usize = 2;

pub(crate) fn coming_and_going(_case: &Case) -> Outcome {
    explore_store(|| {
        let fixture = Fixture::new();
        let gone = fixture.written("gone", &[1; CHUNK + 500]);
        let kept = fixture.written("kept", &[2; CHUNK]);
        let ino = kept.ino();
        let store = &fixture.store;
        store.close(kept);
        thread::scope(|scope| {
            scope.spawn(|| {
                fixture.write(&gone, 200, &[3; CHUNK]);
                delete(store, gone);
            });
            scope.spawn(|| (1..=ROUNDS).for_each(|round| reopen(&fixture, ino, round)));
            scope.spawn(|| (0..4).for_each(|_| ask(store)));
            scope.spawn(|| (0..3).for_each(|_| pass_time()));
        });
        let_go(store);
        let next = fixture.end(&[ino]);
        assert!(next[0] == [2; CHUNK * (1 + ROUNDS)], "contents differ");
    })
}

/// Unlinks a file and closes it.
fn delete(store: &Store, file: Arc<File>) {
    let ino = file.ino();
    let unlinked = store.committed().unlink(ROOT, b"gone");
    unlinked.expect("it is there");
    store.close(file);
    store.release_orphan(ino);
}

/// Adds a chunk to a file, closes it, and finds everything there.
fn reopen(fixture: &Fixture, ino: u64, round: usize) {
    let store = &fixture.store;
    let file = store.file(ino).expect("it is there");
    fixture.write(&file, round * CHUNK, &[2; CHUNK]);
    store.close(file);
    let size = CHUNK * (1 + round);
    for _ in 0..3 {
        let seen = store.look_up(ROOT, b"kept").expect("it is there");
        assert_eq!(seen.inode.size, size as u64, "by its name");
        let seen = store.stat(ino).expect("it is there");
        assert_eq!(seen.inode.size, size as u64, "by its number");
    }
    let file = store.file(ino).expect("it is there");
    assert!(fixture.read(&file) == vec![2; size]);
    store.close(file);
}

/// The questions of a monitor: statistics, the busiest files, totals.
fn ask(store: &Store) {
    let gauges = store.gauges();
    assert!(gauges.files <= 2 && gauges.dirty_files <= 2, "{gauges:?}");
    assert!(store.busiest(4).len() <= 2);
    let _ = (store.usage_below(ROOT), store.garbage());
}

/// Waits until time alone has let orphans go and has committed what was written of other files.
fn let_go(store: &Store) {
    let orphans = || store.committed().orphans().expect("the index works");
    while !orphans().0.is_empty() || store.gauges().dirty_files > 0 {
        pass_time();
        thread::yield_now();
    }
}

/// Pieces of a file whose extents do not fit into its inode.
const PIECES: usize = 40;
/// So little memory that a map is read repeatedly.
const LITTLE: usize = 1000;
const TURNS: usize = 600;

static MOVED: Happened = Happened::new();

/// Its packs are rewritten while the store counts what the file frees.
pub(crate) fn going_and_moved(_case: &Case) -> Outcome {
    explore_store(|| {
        let fixture = Fixture::with_memory(LITTLE);
        let store = &fixture.store;
        let gone = fixture.create("gone");
        for piece in 0..PIECES {
            fixture.write(&gone, 2 * piece * CHUNK, b"piece");
        }
        store.sync(&gone).expect("the disk works");
        fixture.settle(&gone, &[]).expect("nothing moves it");
        thread::scope(|scope| {
            scope.spawn(|| store.request_gc(100));
            scope.spawn(|| {
                // Somewhere on the way of those who copy.
                let turns = thread_rng().gen_range(0..TURNS);
                (0..turns).for_each(|_| thread::sleep(Duration::ZERO));
                delete(store, gone);
                (0..3).for_each(|_| pass_time());
            });
        });
        let_go(store);
        MOVED.note(store.counters().packs_rewritten.get() > 0);
        fixture.end(&[]);
    })?;
    MOVED.report("packs were emptied")
}
