//! The small parts on whose locks everything waits, and a store as a whole, under thousands of
//! schedules: no deadlock, no lost wake-up, no broken promise. The files of the product are
//! compiled here with other locks.

#[path = "../interleaved/src/sync.rs"]
mod sync;

#[path = "interleavings/bench.rs"]
mod bench;
#[path = "interleavings/contents.rs"]
mod contents;
#[path = "interleavings/disk.rs"]
mod disk;
#[path = "interleavings/failing.rs"]
mod failing;
#[path = "interleavings/files.rs"]
mod files;
#[path = "interleavings/model.rs"]
mod model;

#[allow(dead_code, unused_imports)]
#[path = "../../store/src/budget.rs"]
mod budget;
#[allow(dead_code, unused_imports)]
#[path = "../../store/src/cache.rs"]
mod cache;
#[allow(dead_code)]
#[path = "../../store/src/commit/control.rs"]
mod control;
#[allow(dead_code)]
#[path = "../../index/src/engine/group.rs"]
mod group;
#[path = "interleavings/packs.rs"]
mod packs;
#[allow(dead_code)]
#[path = "../../store/src/pins.rs"]
mod pins;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use shale_tests::{Case, Outcome, Suite, ensure, is_long, note, seed, tally};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::{Config, Runner, thread};

use budget::Budget;
use cache::FrameCache;
use control::Control;
use group::Syncer;
use pins::Pins;

/// What the crates of these files call their errors.
#[derive(Debug)]
enum Error {
    Refused(i32),
    Poisoned,
    Io {
        action: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    Closed(String),
}

impl From<shale_codec::Error> for Error {
    fn from(_: shale_codec::Error) -> Self {
        Self::Refused(libc::EIO)
    }
}

impl Error {
    fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io {
            action,
            path,
            source,
        }
    }

    fn errno(&self) -> i32 {
        match self {
            Self::Refused(errno) => *errno,
            Self::Io { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
            Self::Poisoned | Self::Closed(_) => libc::EIO,
        }
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io { action, path, .. } => write!(f, "{action} {}", path.display()),
            Self::Closed(why) => f.write_str(why),
            Self::Refused(_) | Self::Poisoned => write!(f, "errno {}", self.errno()),
        }
    }
}

mod kv {
    pub(crate) type Version = u64;
}

/// Of every thread: the codecs need more than the default.
const STACK: usize = 512 << 10;

fn main() -> ExitCode {
    Suite::new("interleavings")
        .limit(Duration::from_secs(1200))
        .test("memory_is_bounded_and_nobody_waits_for_ever", memory)
        .test("what_is_given_back_wakes_all_for_whom_it_is_enough", given)
        .test("a_stalled_budget_lets_everybody_go", stalled)
        .test("writers_press_the_committer_until_there_is_room", pressure)
        .test("a_pinned_pack_stays_and_an_unpinned_one_goes", pinned)
        .test("frames_are_loaded_by_one_thread_at_a_time", frames)
        .test("what_was_written_before_a_cycle_is_in_it", cycles)
        .test("a_stopped_committer_leaves_nobody_behind", stopping)
        .test("what_a_sync_acknowledges_is_durable", syncs)
        .test(
            "frames_appended_before_a_sync_are_durable_and_listed",
            packs::appended,
        )
        .test("frames_of_a_pack_that_failed_are_called_lost", packs::lost)
        .test(
            "a_file_that_many_change_holds_what_one_after_the_other_leaves",
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
        .test("full_memory_lets_everybody_go_on", failing::full)
        .test(
            "full_memory_and_a_disk_that_fails_once",
            failing::full_and_failing,
        )
        .run()
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

/// The same with so many times fewer schedules, for programs of many steps.
fn explore_part(part: usize, program: impl Fn() + Send + Sync + Copy + 'static) -> Outcome {
    let seed = seed()?;
    let schedules = if is_long() { 500_000 } else { 8_000 } / part;
    let mut config = Config::new();
    config.stack_size = STACK;
    // Of atomics in a relaxed order: they are taken for strict ones.
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

/// In how many schedules what a test is about has really happened.
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

fn memory(_case: &Case) -> Outcome {
    explore(|| {
        let budget = Arc::new(Budget::new(100));
        let held = Arc::new(AtomicU64::new(0));
        let writers: Vec<_> = [40, 70, 30, 100]
            .into_iter()
            .map(|bytes| {
                let (budget, held) = (Arc::clone(&budget), Arc::clone(&held));
                thread::spawn(move || {
                    for _ in 0..2 {
                        budget.take(bytes, || {}).expect("nothing is stalled");
                        let now = held.fetch_add(bytes, Ordering::SeqCst) + bytes;
                        assert!(now <= 100, "{now} bytes are held");
                        held.fetch_sub(bytes, Ordering::SeqCst);
                        budget.give(bytes);
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().expect("a writer panicked");
        }
        assert_eq!(budget.used(), 0);
    })
}

fn given(_case: &Case) -> Outcome {
    explore(|| {
        let budget = Arc::new(Budget::new(100));
        budget.take(100, || {}).expect("there is room");
        let writers: Vec<_> = (0..3)
            .map(|_| {
                let budget = Arc::clone(&budget);
                thread::spawn(move || budget.take(30, || {}).expect("nothing is stalled"))
            })
            .collect();
        budget.give(100);
        // They keep what they have: nobody else wakes them.
        for writer in writers {
            writer.join().expect("a writer panicked");
        }
        assert_eq!(budget.used(), 90);
    })
}

fn stalled(_case: &Case) -> Outcome {
    explore(|| {
        let budget = Arc::new(Budget::new(100));
        budget.take(90, || {}).expect("there is room");
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let budget = Arc::clone(&budget);
                thread::spawn(move || match budget.take(50, || {}) {
                    Ok(()) => budget.give(50),
                    Err(e) => assert_eq!(e.errno(), libc::ENOSPC),
                })
            })
            .collect();
        budget.stall(libc::ENOSPC);
        // Nobody gives back the 90: only the stall ends their wait.
        for writer in writers {
            writer.join().expect("a writer panicked");
        }
        budget.stall(0);
        budget.give(90);
        budget.take(50, || {}).expect("there is room");
        assert_eq!(budget.used(), 50);
    })
}

fn pressure(_case: &Case) -> Outcome {
    explore(|| {
        let budget = Arc::new(Budget::new(100));
        let control = Arc::new(Control::default());
        let dirty = Arc::new(AtomicU64::new(0));
        let committer = {
            let (budget, control, dirty) = (
                Arc::clone(&budget),
                Arc::clone(&control),
                Arc::clone(&dirty),
            );
            thread::spawn(move || {
                while control.next().is_some() {
                    let written = dirty.swap(0, Ordering::SeqCst);
                    // Giving nothing would wake those who wait for nothing, for ever if the
                    // scheduler prefers them.
                    if written > 0 {
                        budget.give(written);
                    }
                    control.end();
                }
                control.stopped();
            })
        };
        let writers: Vec<_> = (0..3)
            .map(|_| {
                let (budget, control, dirty) = (
                    Arc::clone(&budget),
                    Arc::clone(&control),
                    Arc::clone(&dirty),
                );
                thread::spawn(move || {
                    for _ in 0..2 {
                        budget
                            .take(60, || control.press())
                            .expect("nothing is stalled");
                        dirty.fetch_add(60, Ordering::SeqCst);
                        // As the pipeline does once a chunk is ready.
                        control.kick();
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().expect("a writer panicked");
        }
        control.run().expect("it runs");
        assert_eq!(budget.used(), 0);
        control.stop();
        committer.join().expect("the committer panicked");
    })
}

fn pinned(_case: &Case) -> Outcome {
    explore(|| {
        let pins = Arc::new(Pins::default());
        let users: Vec<_> = (0..3)
            .map(|number| {
                let pins = Arc::clone(&pins);
                thread::spawn(move || {
                    let first = pins.pin(number % 2);
                    let second = pins.pin(number % 2);
                    drop(first);
                    assert!(pins.is_pinned(second.pack()), "a pinned pack would go");
                })
            })
            .collect();
        for user in users {
            user.join().expect("a user panicked");
        }
        assert!(!pins.is_pinned(0) && !pins.is_pinned(1), "a pin stayed");
    })
}

fn frames(_case: &Case) -> Outcome {
    explore(|| {
        // Room for two of three frames.
        let cache = Arc::new(FrameCache::new(250));
        let loading = Arc::new([const { AtomicU64::new(0) }; 3]);
        let readers: Vec<_> = (0..4_u64)
            .map(|reader| {
                let (cache, loading) = (Arc::clone(&cache), Arc::clone(&loading));
                thread::spawn(move || {
                    for step in 0..2 {
                        let frame = (reader + step) % 3;
                        let fails = reader == 0 && step == 0;
                        let found = cache.get((1, frame), || {
                            let others = loading[frame as usize].fetch_add(1, Ordering::SeqCst);
                            assert_eq!(others, 0, "two decode one frame");
                            thread::yield_now();
                            loading[frame as usize].fetch_sub(1, Ordering::SeqCst);
                            if fails {
                                return Err(Error::Refused(libc::EIO));
                            }
                            Ok(vec![frame as u8; 100])
                        });
                        match found {
                            Ok(data) => assert_eq!(*data, vec![frame as u8; 100]),
                            Err(e) => assert!(fails && e.errno() == libc::EIO, "{e}"),
                        }
                        match reader {
                            1 => cache.forget((1, frame)),
                            2 => cache.put((1, 0), Arc::new(vec![0; 100])),
                            _ => drop(cache.memory(100)),
                        }
                        assert!(cache.fill().0 <= 250);
                    }
                })
            })
            .collect();
        for reader in readers {
            reader.join().expect("a reader panicked");
        }
    })
}

fn cycles(_case: &Case) -> Outcome {
    explore(|| {
        let control = Arc::new(Control::default());
        let written = Arc::new(AtomicU64::new(0));
        let durable = Arc::new(AtomicU64::new(0));
        let committer = {
            let (control, written, durable) = (
                Arc::clone(&control),
                Arc::clone(&written),
                Arc::clone(&durable),
            );
            thread::spawn(move || {
                while let Some(reason) = control.next() {
                    let taken = written.load(Ordering::SeqCst);
                    thread::yield_now();
                    if reason.durable {
                        durable.fetch_max(taken, Ordering::SeqCst);
                    }
                    control.end();
                }
                control.stopped();
            })
        };
        let callers: Vec<_> = (0..3)
            .map(|number| {
                let (control, written, durable) = (
                    Arc::clone(&control),
                    Arc::clone(&written),
                    Arc::clone(&durable),
                );
                thread::spawn(move || {
                    let mine = written.fetch_add(1, Ordering::SeqCst) + 1;
                    match number {
                        0 => control.kick(),
                        1 => control.kick_durable(),
                        _ => control.press(),
                    }
                    control.run().expect("it runs");
                    assert!(durable.load(Ordering::SeqCst) >= mine, "not in the cycle");
                })
            })
            .collect();
        for caller in callers {
            caller.join().expect("a caller panicked");
        }
        control.stop();
        committer.join().expect("the committer panicked");
    })
}

fn stopping(_case: &Case) -> Outcome {
    explore(|| {
        let control = Arc::new(Control::default());
        let committer = {
            let control = Arc::clone(&control);
            thread::spawn(move || {
                while control.next().is_some() {
                    control.end();
                }
                control.stopped();
            })
        };
        let callers: Vec<_> = (0..2)
            .map(|_| {
                let control = Arc::clone(&control);
                thread::spawn(move || {
                    let first = control.run();
                    let second = control.run();
                    assert!(first.is_ok() || second.is_err(), "it came back to life");
                })
            })
            .collect();
        control.stop();
        for caller in callers {
            caller.join().expect("a caller panicked");
        }
        committer.join().expect("the committer panicked");
        assert!(control.run().is_err());
    })
}

fn syncs(_case: &Case) -> Outcome {
    explore(|| {
        let syncer = Arc::new(Syncer::default());
        let committed = Arc::new(AtomicU64::new(0));
        let durable = Arc::new(AtomicU64::new(0));
        let syncing = Arc::new(AtomicU64::new(0));
        let rounds = Arc::new(AtomicU64::new(0));
        let callers: Vec<_> = (0..4)
            .map(|_| {
                let (syncer, committed, durable, syncing, rounds) = (
                    Arc::clone(&syncer),
                    Arc::clone(&committed),
                    Arc::clone(&durable),
                    Arc::clone(&syncing),
                    Arc::clone(&rounds),
                );
                thread::spawn(move || {
                    let version = committed.fetch_add(1, Ordering::SeqCst) + 1;
                    let attempt = || {
                        syncer.sync(version, || {
                            let others = syncing.fetch_add(1, Ordering::SeqCst);
                            assert_eq!(others, 0, "two sync at a time");
                            let taken = committed.load(Ordering::SeqCst);
                            thread::yield_now();
                            syncing.fetch_sub(1, Ordering::SeqCst);
                            // The second round fails.
                            if rounds.fetch_add(1, Ordering::SeqCst) == 1 {
                                return Err(Error::Io {
                                    action: "sync",
                                    path: PathBuf::new(),
                                    source: std::io::Error::from_raw_os_error(libc::EIO),
                                });
                            }
                            durable.fetch_max(taken, Ordering::SeqCst);
                            Ok(taken)
                        })
                    };
                    match attempt() {
                        Ok(()) => {}
                        Err(e) => {
                            assert_eq!(e.errno(), libc::EIO);
                            attempt().expect("only one round fails");
                        }
                    }
                    assert!(durable.load(Ordering::SeqCst) >= version, "not durable");
                })
            })
            .collect();
        for caller in callers {
            caller.join().expect("a caller panicked");
        }
        assert_eq!(syncer.rounds(), rounds.load(Ordering::SeqCst));
    })
}
