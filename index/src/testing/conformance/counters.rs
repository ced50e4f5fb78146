//! Numbers that many sessions add to.

use std::sync::atomic::{AtomicI64, Ordering};

use super::{Fixture, add, commit, holds, in_threads, put, sum};
use crate::kv::{Compare, Counter, SUMS, Want};

pub(super) fn additions_add_up(fixture: &dyn Fixture) {
    let kv = fixture.session();
    assert_eq!(sum(&*kv, b"n"), None);
    let mut expected = Counter::default();
    let mut created = None;
    for round in 1..=20i64 {
        let mut delta = Counter::of(round);
        delta.sums[1] = -round;
        delta.sums[SUMS - 1] = i64::MAX;
        delta.latest = 100 - round;
        let version = commit(&*kv, |txn| {
            txn.add(b"n".to_vec(), delta);
        });
        expected = expected.plus(&delta);
        let created = *created.get_or_insert(version);
        let seen = kv.get_many(&[Want::Counter(b"n".to_vec())]);
        let seen = seen.expect("the engine reads");
        let (key, value) = &seen.found[0][0];
        assert_eq!(
            (key, &value.value[..]),
            (&b"n".to_vec(), &expected.encode()[..])
        );
        assert_eq!((value.version, value.created), (version, created));
    }
    commit(&*kv, |txn| {
        txn.drop_counter(b"n".to_vec());
    });
    assert_eq!(sum(&*kv, b"n"), None);
    commit(&*kv, |txn| {
        txn.drop_counter(b"n".to_vec());
    });
    add(&*kv, b"n", 5);
    assert_eq!(sum(&*kv, b"n"), Some(5), "what was dropped came back");
}

pub(super) fn additions_of_many_sessions_add_up(fixture: &dyn Fixture) {
    let sessions: Vec<_> = (0..3).map(|_| fixture.session()).collect();
    in_threads(12, |thread| {
        let kv = &sessions[thread % 3];
        for _ in 0..40 {
            commit(&**kv, |txn| {
                txn.add(b"all".to_vec(), Counter::of(1))
                    .add(vec![b'n', b'0' + (thread % 4) as u8], Counter::of(10));
            });
        }
    });
    for kv in &sessions {
        assert_eq!(sum(&**kv, b"all"), Some(480));
        for number in b'0'..b'4' {
            assert_eq!(sum(&**kv, &[b'n', number]), Some(1200));
        }
    }
}

/// One thread takes the sum of the counter over whenever it drops it unchanged. No addition may get
/// lost or be counted twice between the two.
pub(super) fn additions_and_drops_are_serial(fixture: &dyn Fixture) {
    let sessions: Vec<_> = (0..3).map(|_| fixture.session()).collect();
    let taken = AtomicI64::new(0);
    in_threads(6, |thread| {
        let kv = &*sessions[thread % 3];
        if thread > 0 {
            for _ in 0..60 {
                add(kv, b"n", 1);
            }
            return;
        }
        for _ in 0..30 {
            let seen = kv.get_many(&[Want::Counter(b"n".to_vec())]);
            let seen = seen.expect("the engine reads");
            let Some((_, value)) = seen.found[0].first() else {
                continue;
            };
            let counter = Counter::decode(&value.value).expect("a counter");
            let outcome = super::try_commit(kv, |txn| {
                txn.compare(Compare::RangeNotNewer {
                    start: b"n".to_vec(),
                    end: b"o".to_vec(),
                    version: seen.version,
                })
                .drop_counter(b"n".to_vec());
            });
            if outcome != crate::kv::Outcome::Conflict {
                taken.fetch_add(counter.sums[0], Ordering::Relaxed);
            }
        }
    });
    let kv = &*sessions[0];
    let rest = sum(kv, b"n").unwrap_or(0);
    assert_eq!(taken.load(Ordering::Relaxed) + rest, 300);
    // The slots of every lane are out of date now, in every session.
    commit(kv, |txn| {
        txn.drop_counter(b"n".to_vec());
    });
    in_threads(12, |thread| {
        add(&*sessions[thread % 3], b"n", 1);
    });
    assert_eq!(sum(kv, b"n"), Some(12));
    commit(kv, |txn| {
        txn.delete_range(b"m".to_vec(), b"o".to_vec());
    });
    in_threads(12, |thread| {
        add(&*sessions[thread % 3], b"n", 1);
    });
    assert_eq!(sum(kv, b"n"), Some(12));
}

pub(super) fn counters_are_shown_in_ranges_with_their_sums(fixture: &dyn Fixture) {
    let sessions: Vec<_> = (0..3).map(|_| fixture.session()).collect();
    let kv = &*sessions[0];
    for key in [&b"a"[..], b"c", b"e"] {
        put(kv, key, b"v");
    }
    in_threads(12, |thread| {
        add(&*sessions[thread % 3], b"b", 1);
        add(&*sessions[thread % 3], b"d", 2);
    });
    let shown = |start: &[u8], end: &[u8], limit| -> Vec<(u8, i64)> {
        let found = kv.range(start, end, limit).expect("the engine reads");
        let shown = |(key, value): (Vec<u8>, crate::kv::Versioned)| {
            let counter = Counter::decode(&value.value);
            (key[0], counter.map_or(-1, |counter| counter.sums[0]))
        };
        found.into_iter().map(shown).collect()
    };
    let all = [(b'a', -1), (b'b', 12), (b'c', -1), (b'd', 24), (b'e', -1)];
    for limit in 0..=6 {
        let expected = &all[..all.len().min(limit)];
        assert_eq!(shown(b"", b"z", limit), expected, "limit {limit}");
    }
    assert_eq!(shown(b"b", b"c", 9), all[1..2]);
    assert_eq!(shown(b"b", b"b\0", 9), all[1..2], "up to its successor");
    assert_eq!(shown(b"b\0", b"d", 9), all[2..3], "from its successor on");
    assert_eq!(shown(b"b\0", b"d\0\0", 9), all[2..4]);
    let mut scanned = Vec::new();
    let range = (b"b\0".to_vec(), b"d\0".to_vec());
    kv.scan(
        &range,
        &mut |key, _| {
            scanned.push(key[0]);
            Ok(())
        },
        &mut || {},
    )
    .expect("the engine scans");
    assert_eq!(scanned, b"cd");
}

pub(super) fn a_counter_is_compared_as_a_range(fixture: &dyn Fixture) {
    let (kv, other) = (fixture.session(), fixture.session());
    let not_newer = |version| Compare::RangeNotNewer {
        start: b"p1".to_vec(),
        end: b"p2".to_vec(),
        version,
    };
    let empty = || Compare::RangeEmpty {
        start: b"p1".to_vec(),
        end: b"p2".to_vec(),
    };
    assert!(holds(&*kv, empty()));
    let first = add(&*kv, b"p1", 1);
    assert!(!holds(&*kv, empty()));
    assert!(holds(&*other, not_newer(first)));
    let second = add(&*other, b"p1", -1);
    assert!(
        !holds(&*kv, not_newer(first)),
        "a sum of zero was changed too"
    );
    assert!(holds(&*kv, not_newer(second)));
    add(&*other, b"p2", 1);
    assert!(holds(&*kv, not_newer(second)), "another counter");
    commit(&*kv, |txn| {
        txn.drop_counter(b"p1".to_vec());
    });
    assert!(holds(&*kv, empty()));
}
