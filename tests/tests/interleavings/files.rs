//! Files that come and go while others count them, sync and collect.

use std::sync::Arc;
use std::time::Duration;

use interleaved::access::pass_time;
use interleaved::index::ROOT;
use interleaved::{File, Store};
use shale_tests::{Case, Outcome};
use shuttle::rand::{Rng, thread_rng};
use shuttle::thread;

use crate::bench::{Bench, CHUNK};
use crate::{Happened, explore_store};

/// How often a chunk is added to the file that stays.
const ROUNDS: usize = 2;

pub(crate) fn coming_and_going(_case: &Case) -> Outcome {
    explore_store(|| {
        let bench = Bench::new();
        let gone = bench.written("gone", &[1; CHUNK + 500]);
        let kept = bench.written("kept", &[2; CHUNK]);
        let ino = kept.ino();
        let store = &bench.store;
        store.close(kept);
        thread::scope(|scope| {
            scope.spawn(|| {
                bench.write(&gone, 200, &[3; CHUNK]);
                delete(store, gone);
            });
            scope.spawn(|| (1..=ROUNDS).for_each(|round| reopen(&bench, ino, round)));
            scope.spawn(|| (0..4).for_each(|_| ask(store)));
            scope.spawn(|| (0..3).for_each(|_| pass_time()));
        });
        let_go(store);
        let next = bench.end(&[ino]);
        assert!(next[0] == [2; CHUNK * (1 + ROUNDS)], "contents differ");
    })
}

/// Takes the name of a file away, and then the file.
fn delete(store: &Store, file: Arc<File>) {
    let ino = file.ino();
    let unlinked = store.namespace().unlink(ROOT, b"gone");
    unlinked.expect("it is there");
    store.close(file);
    store.release_orphan(ino);
}

/// Adds a chunk to a file, closes it, and finds everything there.
fn reopen(bench: &Bench, ino: u64, round: usize) {
    let store = &bench.store;
    let file = store.file(ino).expect("it is there");
    bench.write(&file, round * CHUNK, &[2; CHUNK]);
    store.close(file);
    let size = CHUNK * (1 + round);
    for _ in 0..3 {
        let seen = store.look_up(ROOT, b"kept").expect("it is there");
        assert_eq!(seen.inode.size, size as u64, "by its name");
        let seen = store.inode(ino).expect("it is there");
        assert_eq!(seen.inode.size, size as u64, "by its number");
    }
    let file = store.file(ino).expect("it is there");
    assert!(bench.read(&file) == vec![2; size]);
    store.close(file);
}

/// What those ask who look at a store from outside.
fn ask(store: &Store) {
    let gauges = store.gauges();
    assert!(gauges.files <= 2 && gauges.dirty_files <= 2, "{gauges:?}");
    assert!(store.busiest(4).len() <= 2);
    let _ = (store.taken_below(ROOT), store.garbage());
}

/// Without anybody's help but that of the time, files that nobody wants any more go, and what has
/// been written of others is committed.
fn let_go(store: &Store) {
    let orphans = || store.namespace().orphans().expect("the index works");
    while !orphans().is_empty() || store.gauges().dirty_files > 0 {
        pass_time();
        thread::yield_now();
    }
}

/// Pieces of a file whose extents do not fit into its inode.
const PIECES: usize = 40;
/// So little that a map is read again and again.
const LITTLE: usize = 1000;
const TURNS: usize = 600;

static MOVED: Happened = Happened::new();

/// What is in its packs is copied while it is counted what it frees.
pub(crate) fn going_and_moved(_case: &Case) -> Outcome {
    explore_store(|| {
        let bench = Bench::with_memory(LITTLE);
        let store = &bench.store;
        let gone = bench.create("gone");
        for piece in 0..PIECES {
            bench.write(&gone, 2 * piece * CHUNK, b"piece");
        }
        store.sync(&gone).expect("the disk works");
        bench.settle(&gone, &[]).expect("nobody moves it");
        thread::scope(|scope| {
            scope.spawn(|| store.collect(100));
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
        bench.end(&[]);
    })?;
    MOVED.report("packs were emptied")
}
