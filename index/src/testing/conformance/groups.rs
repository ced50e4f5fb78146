//! Many threads that commit at the same time.

use super::{Fixture, commit, in_threads, numbered, sum, try_commit, value};
use crate::kv::{Compare, Counter, Outcome};

const THREADS: usize = 32;

pub(super) fn transactions_of_many_threads_are_each_answered(fixture: &dyn Fixture) {
    let kv = fixture.session();
    in_threads(THREADS, |thread| {
        let mut last = 0;
        for round in 0..25 {
            let key = numbered("k", thread * 1000 + round);
            let version = commit(&*kv, |txn| {
                txn.compare(Compare::Absent(key.clone()))
                    .put(key.clone(), vec![thread as u8])
                    .add(b"all".to_vec(), Counter::of(1));
            });
            assert!(version > last, "versions of one thread grow");
            last = version;
            let seen = kv.get(&key).expect("the engine reads").expect("a value");
            assert_eq!(
                (&seen.value[..], seen.version),
                (&[thread as u8][..], version)
            );
        }
    });
    assert_eq!(sum(&*kv, b"all"), Some(25 * THREADS as i64));
}

/// A transaction that does not hold makes no other fail, and none that holds.
pub(super) fn a_conflict_does_not_spread_to_others(fixture: &dyn Fixture) {
    let kv = fixture.session();
    in_threads(THREADS, |thread| {
        for round in 0..25 {
            let key = numbered("k", thread * 1000 + round);
            let fails = (thread + round) % 5 == 0;
            let outcome = try_commit(&*kv, |txn| {
                if fails {
                    txn.compare(Compare::Exists(numbered("missing", thread)));
                }
                txn.put(key.clone(), vec![])
                    .add(b"all".to_vec(), Counter::of(1));
            });
            assert_eq!(outcome == Outcome::Conflict, fails);
            assert_eq!(value(&*kv, &key).is_none(), fails);
        }
    });
    assert_eq!(sum(&*kv, b"all"), Some(20 * THREADS as i64));
}
