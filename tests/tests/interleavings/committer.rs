//! Callers that wait for a cycle of the committer.

use std::sync::Arc;

use shale_store::testing::CommitControl;
use shale_tests::{Case, Outcome};
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::thread;

use crate::explore;

pub(crate) fn cycles(_case: &Case) -> Outcome {
    explore(|| {
        let control = Arc::new(CommitControl::default());
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

pub(crate) fn stopping(_case: &Case) -> Outcome {
    explore(|| {
        let control = Arc::new(CommitControl::default());
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
