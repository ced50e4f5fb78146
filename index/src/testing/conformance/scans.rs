//! Visits of long ranges.

use std::sync::Arc;

use super::{Fixture, add, commit, numbered, put};
use crate::kv::{Kv, Version};

const KEYS: usize = 3500;

/// Pairs of keys at both ends of the range have one value at all times.
fn fill(kv: &dyn Kv, value: &[u8]) {
    let step = kv.limits().ops.min(70);
    for from in (0..KEYS).step_by(step) {
        commit(kv, |txn| {
            for number in from..(from + step).min(KEYS) {
                txn.put(numbered("k", number), value.to_vec());
            }
        });
    }
}

type Seen = Vec<(Vec<u8>, Vec<u8>, Version)>;

/// Scans the keys, and calls `meanwhile` after the first page or so.
fn scan(kv: &dyn Kv, mut meanwhile: impl FnMut()) -> (Version, Seen, usize) {
    let seen = std::cell::RefCell::new(Seen::new());
    let mut restarts = 0;
    let mut visited = 0;
    let version = kv
        .scan(
            &(b"k".to_vec(), b"l".to_vec()),
            &mut |key, value| {
                visited += 1;
                if visited == 500 {
                    meanwhile();
                }
                let mut seen = seen.borrow_mut();
                seen.push((key.to_vec(), value.value.to_vec(), value.version));
                Ok(())
            },
            &mut || {
                restarts += 1;
                seen.borrow_mut().clear();
            },
        )
        .expect("the engine scans");
    (version, seen.into_inner(), restarts)
}

fn check(version: Version, seen: &Seen) {
    let keys: Vec<_> = seen.iter().map(|(key, ..)| key.clone()).collect();
    let expected: Vec<_> = (0..KEYS).map(|number| numbered("k", number)).collect();
    assert_eq!(keys, expected);
    let newest = seen.iter().map(|(.., version)| *version).max();
    assert!(newest.is_some_and(|newest| newest <= version));
    let (first, last) = (&seen[0].1, &seen[KEYS - 1].1);
    assert_eq!(first, last, "two states in one scan");
}

/// Writes both ends of the range from another thread, because a visitor must not use the engine.
fn write_ends(kv: &Arc<dyn Kv>, value: &[u8], wait: bool) {
    let (kv, value) = (Arc::clone(kv), value.to_vec());
    let writer = std::thread::spawn(move || {
        commit(&*kv, |txn| {
            let txn = txn.put(numbered("k", 0), value.clone());
            txn.put(numbered("k", KEYS - 1), value);
        })
    });
    if wait {
        writer.join().expect("it writes");
    }
}

pub(super) fn a_long_scan_shows_one_version_while_others_write(fixture: &dyn Fixture) {
    let (kv, other) = (fixture.session(), fixture.session());
    fill(&*kv, b"old");
    let (version, seen, restarts) = scan(&*kv, || write_ends(&other, b"new", fixture.shared()));
    check(version, &seen);
    if fixture.shared() {
        assert_eq!((&seen[0].1[..], restarts), (&b"old"[..], 0));
    }
    let empty = (b"x".to_vec(), b"y".to_vec());
    let none = kv.scan(&empty, &mut |_, _| panic!("a key"), &mut || {});
    assert!(none.expect("the engine scans") >= version);
}

pub(super) fn a_scan_begins_again_when_its_version_is_forgotten(fixture: &dyn Fixture) {
    let (kv, other) = (fixture.session(), fixture.session());
    fill(&*kv, b"old");
    let mut forgotten = false;
    let (version, seen, restarts) = scan(&*kv, || {
        if fixture.shared() {
            write_ends(&other, b"new", true);
            forgotten = fixture.compact();
        }
    });
    check(version, &seen);
    if forgotten {
        assert_eq!((&seen[0].1[..], restarts), (&b"new"[..], 1));
    }
}

pub(super) fn a_dump_shows_every_key_once(fixture: &dyn Fixture) {
    let (kv, other) = (fixture.session(), fixture.session());
    fill(&*kv, b"old");
    add(&*kv, b"n", 1);
    add(&*other, b"n", 1);
    put(&*kv, b"z", b"");
    let mut keys = Vec::new();
    kv.dump(&mut |key, _| {
        keys.push(key.to_vec());
        if keys.len() == 500 && fixture.shared() {
            write_ends(&other, b"new", true);
            fixture.compact();
        }
        Ok(())
    })
    .expect("the engine dumps");
    let mut expected: Vec<_> = (0..KEYS).map(|number| numbered("k", number)).collect();
    expected.extend([b"n".to_vec(), b"z".to_vec()]);
    assert_eq!(keys, expected);
}
