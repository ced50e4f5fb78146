//! One sync of the index for all waiting callers.

use std::path::PathBuf;
use std::sync::Arc;

use shale_index::Error;
use shale_index::testing::GroupSync;
use shale_tests::{Case, Outcome};
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::thread;

use crate::explore;

pub(crate) fn acknowledged(_case: &Case) -> Outcome {
    explore(|| {
        let syncer = Arc::new(GroupSync::default());
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
                        Err(Error::Io { source, .. }) => {
                            assert_eq!(source.raw_os_error(), Some(libc::EIO));
                            attempt().expect("only one round fails");
                        }
                        Err(e) => panic!("{e}"),
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
