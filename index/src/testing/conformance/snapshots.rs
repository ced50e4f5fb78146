//! Snapshots.

use super::{Fixture, commit, in_threads, numbered, put, value};
use crate::kv::Want;
use crate::primitives::atomic::{AtomicBool, Ordering};

/// What one session was told, every other one sees.
pub(super) fn a_snapshot_shows_what_was_answered_before_it(fixture: &dyn Fixture) {
    let (one, other) = (fixture.session(), fixture.session());
    for round in 0..100u32 {
        let bytes = round.to_be_bytes();
        let version = put(&*one, b"key", &bytes);
        let seen = other.get_many(&[Want::Key(b"key".to_vec())]);
        let seen = seen.expect("the engine reads");
        assert!(seen.version >= version);
        let (_, found) = &seen.found[0][0];
        assert_eq!((&found.value[..], found.version), (&bytes[..], version));
        assert!(other.version() >= version && one.version() >= version);
    }
}

/// Two keys that are always changed together are never seen apart.
pub(super) fn a_snapshot_shows_one_state_and_its_version(fixture: &dyn Fixture) {
    let (writer, reader) = (fixture.session(), fixture.session());
    let empty = reader.get_many(&[]).expect("the engine reads");
    let stop = AtomicBool::new(false);
    in_threads(2, |thread| {
        if thread == 0 {
            for round in 0..200u32 {
                let bytes = round.to_be_bytes().to_vec();
                commit(&*writer, |txn| {
                    let txn = txn.put(b"a".to_vec(), bytes.clone());
                    txn.put(b"z".to_vec(), bytes);
                });
            }
            stop.store(true, Ordering::Relaxed);
            return;
        }
        let mut last = empty.version;
        while !stop.load(Ordering::Relaxed) {
            let wants = [
                Want::Key(b"a".to_vec()),
                Want::Range {
                    start: b"y".to_vec(),
                    end: b"zz".to_vec(),
                    limit: 10,
                },
            ];
            let seen = reader.get_many(&wants).expect("the engine reads");
            assert!(seen.version >= last, "time goes back");
            last = seen.version;
            let values: Vec<_> = seen.found.iter().map(|found| found.first()).collect();
            match values[..] {
                [None, None] => {}
                [Some((_, a)), Some((_, z))] => {
                    assert_eq!(a, z, "two states in one snapshot");
                    assert!(a.version <= seen.version);
                }
                _ => panic!("half a transaction: {seen:?}"),
            }
        }
    });
}

/// The same with more wants than one request takes.
pub(super) fn more_wants_than_a_request_takes_are_one_snapshot(fixture: &dyn Fixture) {
    let (writer, reader) = (fixture.session(), fixture.session());
    const KEYS: usize = 60;
    let write = |round: u32| {
        commit(&*writer, |txn| {
            for number in 0..KEYS {
                txn.put(numbered("k", number), round.to_be_bytes().to_vec());
            }
        })
    };
    write(0);
    let wants: Vec<_> = (0..300)
        .map(|want| match want % 3 {
            0 => Want::Range {
                start: numbered("k", want % KEYS),
                end: b"l".to_vec(),
                limit: 40,
            },
            _ => Want::Key(numbered("k", want % KEYS)),
        })
        .collect();
    let stop = AtomicBool::new(false);
    in_threads(2, |thread| {
        if thread == 0 {
            for round in 1..60 {
                write(round);
            }
            stop.store(true, Ordering::Relaxed);
            return;
        }
        while !stop.load(Ordering::Relaxed) {
            let seen = reader.get_many(&wants).expect("the engine reads");
            let mut values = seen.found.iter().flatten().map(|(_, value)| value.version);
            let first = values.next().expect("a value");
            assert!(values.all(|version| version == first), "two states");
            let lengths = seen.found.iter().map(Vec::len);
            for (want, len) in lengths.enumerate() {
                let rest = KEYS - want % KEYS;
                let expected = if want % 3 == 0 { rest.min(40) } else { 1 };
                assert_eq!(len, expected, "want {want}");
            }
        }
    });
}

pub(super) fn ranges_are_limited_ordered_and_may_be_empty(fixture: &dyn Fixture) {
    let kv = fixture.session();
    let limits = kv.limits().ops.min(80);
    for from in (0..2500).step_by(limits) {
        commit(&*kv, |txn| {
            for number in from..(from + limits).min(2500) {
                txn.put(numbered("k", number), vec![]);
            }
        });
    }
    let range = |start: &[u8], end: &[u8], limit| {
        let found = kv.range(start, end, limit).expect("the engine reads");
        found.into_iter().map(|(key, _)| key).collect::<Vec<_>>()
    };
    let numbers = |from, to| {
        (from..to)
            .map(|number| numbered("k", number))
            .collect::<Vec<_>>()
    };
    assert_eq!(range(b"k", b"l", usize::MAX), numbers(0, 2500));
    assert_eq!(range(b"k", b"l", 1500), numbers(0, 1500));
    assert_eq!(range(b"k", b"l", 0), numbers(0, 0));
    let (start, end) = (numbered("k", 7), numbered("k", 9));
    assert_eq!(
        range(&start, &end, 10),
        numbers(7, 9),
        "the end is not in it"
    );
    assert_eq!(range(&end, &start, 10), numbers(0, 0), "upside down");
    assert_eq!(range(&start, &start, 10), numbers(0, 0));
    assert_eq!(range(b"", &[0xff; 64], 3), numbers(0, 3));
    let mut after = start.clone();
    after.push(0);
    assert_eq!(range(&start, &after, 10), numbers(7, 8), "one key");
    assert_eq!(range(&after, &end, 10), numbers(8, 9));
}

pub(super) fn a_put_keeps_the_creation_and_a_delete_ends_it(fixture: &dyn Fixture) {
    let kv = fixture.session();
    let first = put(&*kv, b"a", b"1");
    let second = put(&*kv, b"a", b"2");
    assert!(second > first, "versions grow");
    let seen = kv.get(b"a").expect("the engine reads").expect("a value");
    assert_eq!((seen.version, seen.created), (second, first));
    commit(&*kv, |txn| {
        txn.delete(b"a".to_vec());
    });
    assert_eq!(value(&*kv, b"a"), None);
    let third = put(&*kv, b"a", b"");
    let seen = kv.get(b"a").expect("the engine reads").expect("a value");
    assert_eq!((seen.version, seen.created), (third, third));
    assert_eq!(&seen.value[..], b"", "an empty value is a value");
    commit(&*kv, |txn| {
        txn.delete_range(b"a".to_vec(), b"b".to_vec());
    });
    assert_eq!(value(&*kv, b"a"), None);
}
