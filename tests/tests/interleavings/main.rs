//! The small parts with the locks that threads wait on, and a store as a whole, under thousands of
//! schedules: no deadlock, no lost wake-up, no broken guarantee. The crates are built with the
//! feature `shuttle`, which puts their locks, threads and channels under a scheduler.

mod cache;
mod committer;
mod contents;
mod disk;
mod failing;
mod files;
mod fixture;
mod group_sync;
mod limiter;
mod model;
mod packs;
mod pins;
mod replicated;
mod sharing;

use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use shale_tests::{Outcome, Suite, ensure, is_long, note, seed, tally};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner};

/// Stack of every thread: the codecs need more than the default.
const STACK: usize = 512 << 10;

fn main() -> ExitCode {
    Suite::new("interleavings")
        .limit(Duration::from_secs(1200))
        .test(
            "memory_is_bounded_and_every_writer_makes_progress",
            limiter::bounded,
        )
        .test(
            "freed_bytes_wake_every_writer_they_suffice_for",
            limiter::given_back,
        )
        .test("a_stalled_limiter_releases_every_writer", limiter::stalled)
        .test(
            "writers_press_the_committer_until_there_is_room",
            limiter::pressure,
        )
        .test("a_pinned_pack_stays_and_an_unpinned_one_goes", pins::pinned)
        .test("frames_are_loaded_by_one_thread_at_a_time", cache::loading)
        .test(
            "what_was_written_before_a_cycle_is_in_it",
            committer::cycles,
        )
        .test(
            "a_stopped_committer_releases_every_waiter",
            committer::stopping,
        )
        .test(
            "what_a_sync_acknowledges_is_durable",
            group_sync::acknowledged,
        )
        .test(
            "frames_appended_before_a_sync_are_durable_and_listed",
            packs::appended,
        )
        .test("frames_of_a_pack_that_failed_are_called_lost", packs::lost)
        .test(
            "concurrent_changes_of_a_file_are_serializable",
            contents::shared,
        )
        .test("settling_changes_no_byte", contents::settled)
        .test("settling_in_a_batch_changes_no_byte", contents::batched)
        .test("collecting_changes_no_byte", contents::collected)
        .test(
            "files_come_and_go_while_others_count",
            files::coming_and_going,
        )
        .test(
            "what_a_deleted_file_frees_is_freed_wherever_it_is",
            files::going_and_moved,
        )
        .test("a_disk_that_fails_once_loses_nothing", failing::failing)
        .test("writers_make_progress_when_memory_is_full", failing::full)
        .test("changes_of_two_stores_are_serializable", sharing::written)
        .test(
            "two_stores_settle_and_collect_what_the_other_one_writes",
            sharing::settled_and_collected,
        )
        .test(
            "a_file_that_one_store_removes_stays_while_the_other_has_it_open",
            sharing::removed,
        )
        .test(
            "full_memory_and_a_disk_that_fails_once",
            failing::full_and_failing,
        )
        .test(
            "transactions_of_sessions_happen_once_and_as_answered",
            replicated::exactly_once,
        )
        .test("an_evicted_session_is_told_the_truth", replicated::evicted)
        .run()
}

/// The errno that a program would get.
fn errno(error: shale_store::Error) -> i32 {
    shale_fs::Error::from(error).errno()
}

/// Runs a program under many schedules: uniformly random ones, and ones with few but nasty
/// changes between threads.
fn explore(program: impl Fn() + Send + Sync + Copy + 'static) -> Outcome {
    explore_part(1, program)
}

/// The same with a whole store.
fn explore_store(program: impl Fn() + Send + Sync + Copy + 'static) -> Outcome {
    explore_part(20, program)
}

/// The same with a fraction `1 / part` of the schedules, for programs of many steps.
fn explore_part(part: usize, program: impl Fn() + Send + Sync + Copy + 'static) -> Outcome {
    let seed = seed()?;
    let schedules = if is_long() { 500_000 } else { 8_000 } / part;
    let mut config = Config::new();
    config.stack_size = STACK;
    // About atomics with relaxed ordering: shuttle treats them as sequentially consistent.
    config.silence_warnings = true;
    let run =
        |scheduler: Box<dyn Scheduler + Send>| Runner::new(scheduler, config.clone()).run(program);
    let random = run(Box::new(RandomScheduler::new_from_seed(seed, schedules)));
    let nasty = run(Box::new(PctScheduler::new_from_seed(seed, 3, schedules)));
    let done = (random + nasty) as u64;
    note(format!("{done} schedules"));
    tally("schedules of threads", done, done, 0);
    Ok(())
}

/// Counts the schedules in which the event that a test is about happened.
struct Happened(std::sync::atomic::AtomicU64);

impl Happened {
    const fn new() -> Self {
        Self(std::sync::atomic::AtomicU64::new(0))
    }

    fn note(&self, happened: bool) {
        self.0.fetch_add(happened.into(), Ordering::Relaxed);
    }

    fn report(&self, what: &str) -> Outcome {
        let times = self.0.load(Ordering::Relaxed);
        note(format!("{what} in {times} of them"));
        ensure!(times > 0, "nothing was put to the test");
        Ok(())
    }
}
