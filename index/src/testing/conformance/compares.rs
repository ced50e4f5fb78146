//! Conditions of transactions.

use std::sync::Mutex;

use super::{Fixture, commit, holds, in_threads, put, try_commit, value};
use crate::kv::{Compare, Outcome};

fn empty(start: &[u8], end: &[u8]) -> Compare {
    Compare::RangeEmpty {
        start: start.to_vec(),
        end: end.to_vec(),
    }
}

fn not_newer(start: &[u8], end: &[u8], version: u64) -> Compare {
    Compare::RangeNotNewer {
        start: start.to_vec(),
        end: end.to_vec(),
        version,
    }
}

pub(super) fn every_compare_holds_when_it_should(fixture: &dyn Fixture) {
    let kv = fixture.session();
    let created = put(&*kv, b"b", b"1");
    let version = put(&*kv, b"b", b"2");
    let (there, missing) = (b"b".to_vec(), b"x".to_vec());
    let cases = [
        (Compare::Absent(there.clone()), false),
        (Compare::Absent(missing.clone()), true),
        (Compare::Exists(there.clone()), true),
        (Compare::Exists(missing.clone()), false),
        (Compare::VersionIs(there.clone(), version), true),
        (Compare::VersionIs(there.clone(), created), false),
        (Compare::VersionIs(there.clone(), u64::MAX), false),
        (Compare::VersionIs(there.clone(), 0), false),
        (Compare::VersionIs(missing.clone(), 0), false),
        (Compare::VersionIs(missing.clone(), version), false),
        (Compare::CreatedAt(there.clone(), created), true),
        (Compare::CreatedAt(there, version), false),
        (Compare::CreatedAt(missing.clone(), 0), false),
        (Compare::CreatedAt(missing, created), false),
        (empty(b"a", b"b"), true),
        (empty(b"a", b"b\0"), false),
        (empty(b"b", b"c"), false),
        (empty(b"c", b"z"), true),
        (empty(b"z", b"a"), true),
        (empty(b"b", b"b"), true),
        (not_newer(b"a", b"c", version), true),
        (not_newer(b"a", b"c", version - 1), false),
        (not_newer(b"a", b"c", created), false),
        (not_newer(b"a", b"c", 0), false),
        (not_newer(b"a", b"c", u64::MAX), true),
        (not_newer(b"c", b"d", 0), true),
        (not_newer(b"z", b"a", 0), true),
    ];
    for (compare, expected) in cases {
        assert_eq!(holds(&*kv, compare.clone()), expected, "{compare:?}");
    }
    commit(&*kv, |txn| {
        txn.delete(b"b".to_vec());
    });
    assert!(holds(&*kv, not_newer(b"a", b"c", 0)), "deleted keys count");
    assert!(holds(&*kv, empty(b"a", b"c")));
}

pub(super) fn a_transaction_that_does_not_hold_changes_nothing(fixture: &dyn Fixture) {
    let kv = fixture.session();
    put(&*kv, b"a", b"1");
    put(&*kv, b"d", b"1");
    let outcome = try_commit(&*kv, |txn| {
        txn.compare(Compare::Exists(b"a".to_vec()))
            .compare(Compare::Absent(b"d".to_vec()))
            .put(b"b".to_vec(), vec![])
            .delete(b"a".to_vec())
            .add(b"n".to_vec(), crate::kv::Counter::of(1))
            .delete_range(b"c".to_vec(), b"e".to_vec());
    });
    assert_eq!(outcome, Outcome::Conflict);
    let keys = kv.range(b"", b"z", 10).expect("the engine reads");
    let keys: Vec<_> = keys.into_iter().map(|(key, _)| key).collect();
    assert_eq!(keys, [b"a".to_vec(), b"d".to_vec()]);
}

/// Many sessions compare what they have read and write it; each version has one winner.
pub(super) fn one_of_two_conflicting_transactions_wins(fixture: &dyn Fixture) {
    let kv = fixture.session();
    put(&*kv, b"key", &0u64.to_be_bytes());
    let won = Mutex::new(Vec::new());
    in_threads(4, |_| {
        let kv = fixture.session();
        for _ in 0..50 {
            let read = kv.get(b"key").expect("the engine reads").expect("a value");
            let number = u64::from_be_bytes(read.value[..].try_into().expect("8 bytes"));
            let outcome = try_commit(&*kv, |txn| {
                txn.compare(Compare::VersionIs(b"key".to_vec(), read.version))
                    .put(b"key".to_vec(), (number + 1).to_be_bytes().to_vec());
            });
            if outcome != Outcome::Conflict {
                won.lock().expect("no panic").push(number);
            }
        }
    });
    let mut won = won.into_inner().expect("no panic");
    won.sort_unstable();
    let expected: Vec<u64> = (0..won.len() as u64).collect();
    assert_eq!(won, expected, "two winners, or a lost change");
    let last = (won.len() as u64).to_be_bytes().to_vec();
    assert_eq!(value(&*kv, b"key"), Some(last));
}
