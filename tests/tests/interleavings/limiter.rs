//! The bound on unwritten bytes.

use std::sync::Arc;

use shale_store::testing::{CommitControl, WriteLimiter};
use shale_tests::{Case, Outcome};
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::thread;

use crate::{errno, explore};

pub(crate) fn bounded(_case: &Case) -> Outcome {
    explore(|| {
        let limiter = Arc::new(WriteLimiter::new(100));
        let held = Arc::new(AtomicU64::new(0));
        let writers: Vec<_> = [40, 70, 30, 100]
            .into_iter()
            .map(|bytes| {
                let (limiter, held) = (Arc::clone(&limiter), Arc::clone(&held));
                thread::spawn(move || {
                    for _ in 0..2 {
                        limiter.take(bytes, || {}).expect("nothing is stalled");
                        let now = held.fetch_add(bytes, Ordering::SeqCst) + bytes;
                        assert!(now <= 100, "{now} bytes are held");
                        held.fetch_sub(bytes, Ordering::SeqCst);
                        limiter.give(bytes);
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().expect("a writer panicked");
        }
        assert_eq!(limiter.used(), 0);
    })
}

pub(crate) fn given_back(_case: &Case) -> Outcome {
    explore(|| {
        let limiter = Arc::new(WriteLimiter::new(100));
        limiter.take(100, || {}).expect("there is room");
        let writers: Vec<_> = (0..3)
            .map(|_| {
                let limiter = Arc::clone(&limiter);
                thread::spawn(move || limiter.take(30, || {}).expect("nothing is stalled"))
            })
            .collect();
        limiter.give(100);
        // They keep what they have: nothing else wakes them.
        for writer in writers {
            writer.join().expect("a writer panicked");
        }
        assert_eq!(limiter.used(), 90);
    })
}

pub(crate) fn stalled(_case: &Case) -> Outcome {
    explore(|| {
        let limiter = Arc::new(WriteLimiter::new(100));
        limiter.take(90, || {}).expect("there is room");
        let writers: Vec<_> = (0..2)
            .map(|_| {
                let limiter = Arc::clone(&limiter);
                thread::spawn(move || match limiter.take(50, || {}) {
                    Ok(()) => limiter.give(50),
                    Err(e) => assert_eq!(errno(e), libc::ENOSPC),
                })
            })
            .collect();
        limiter.stall();
        // The 90 are not given back: only the stall ends their wait.
        for writer in writers {
            writer.join().expect("a writer panicked");
        }
        limiter.resume();
        limiter.give(90);
        limiter.take(50, || {}).expect("there is room");
        assert_eq!(limiter.used(), 50);
    })
}

pub(crate) fn pressure(_case: &Case) -> Outcome {
    explore(|| {
        let limiter = Arc::new(WriteLimiter::new(100));
        let control = Arc::new(CommitControl::default());
        let dirty = Arc::new(AtomicU64::new(0));
        let committer = {
            let (limiter, control, dirty) = (
                Arc::clone(&limiter),
                Arc::clone(&control),
                Arc::clone(&dirty),
            );
            thread::spawn(move || {
                while control.next().is_some() {
                    let written = dirty.swap(0, Ordering::SeqCst);
                    // Giving nothing would wake the writers that wait for nothing, for ever if the
                    // scheduler prefers them.
                    if written > 0 {
                        limiter.give(written);
                    }
                    control.end();
                }
                control.stopped();
            })
        };
        let writers: Vec<_> = (0..3)
            .map(|_| {
                let (limiter, control, dirty) = (
                    Arc::clone(&limiter),
                    Arc::clone(&control),
                    Arc::clone(&dirty),
                );
                thread::spawn(move || {
                    for _ in 0..2 {
                        limiter
                            .take(60, || control.press())
                            .expect("nothing is stalled");
                        dirty.fetch_add(60, Ordering::SeqCst);
                        // As a worker does once a chunk is ready.
                        control.kick();
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().expect("a writer panicked");
        }
        control.run().expect("it runs");
        assert_eq!(limiter.used(), 0);
        control.stop();
        committer.join().expect("the committer panicked");
    })
}
