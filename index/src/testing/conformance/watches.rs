//! Hints.

use std::sync::{Arc, Mutex};

use super::{Fixture, add, commit, eventually, numbered, put, value};
use crate::kv::{Hint, Kv, WatchGuard};

/// What a watch has said so far.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<Hint>>>);

impl Said {
    fn watch(&self, kv: &dyn Kv, start: &[u8], end: &[u8]) -> WatchGuard {
        let said = Arc::clone(&self.0);
        let watcher = move |hint: &Hint| said.lock().expect("no panic").push(hint.clone());
        kv.watch(vec![(start.to_vec(), end.to_vec())], Box::new(watcher))
            .expect("the engine watches")
    }

    /// Whether it leads to `key`, as `version` or a later commit left it.
    fn leads_to(&self, key: &[u8], version: u64) -> bool {
        let said = self.0.lock().expect("no panic");
        said.iter().any(|hint| match hint {
            Hint::Gap => true,
            Hint::Changed { key: k, version: v } => k == key && *v >= version,
        })
    }

    fn expect(&self, key: &[u8], version: u64) {
        let what = format!("a hint at {}", key.escape_ascii());
        eventually(&what, || self.leads_to(key, version));
    }
}

pub(super) fn every_change_is_hinted_at(fixture: &dyn Fixture) {
    let (kv, other) = (fixture.session(), fixture.session());
    put(&*kv, b"w1", b"");
    put(&*kv, b"w3", b"");
    let said = Said::default();
    let guard = said.watch(&*kv, b"w", b"x");
    let version = put(&*other, b"w1", b"");
    put(&*other, b"v", b"");
    put(&*other, b"x", b"");
    said.expect(b"w1", version);
    let version = commit(&*other, |txn| {
        txn.delete(b"w1".to_vec());
    });
    said.expect(b"w1", version);
    let version = commit(&*kv, |txn| {
        txn.delete_range(b"w2".to_vec(), b"w4".to_vec());
    });
    said.expect(b"w3", version);
    for _ in 0..3 {
        let version = add(&*other, b"w5", 1);
        said.expect(b"w5", version);
    }
    let version = commit(&*other, |txn| {
        txn.drop_counter(b"w5".to_vec());
    });
    said.expect(b"w5", version);
    for hint in said.0.lock().expect("no panic").iter() {
        if let Hint::Changed { key, .. } = hint {
            assert!(key.starts_with(b"w"), "not watched: {}", key.escape_ascii());
        }
    }
    drop(guard);
    said.0.lock().expect("no panic").clear();
    put(&*other, b"w1", b"");
    assert!(said.0.lock().expect("no panic").is_empty(), "after its end");
    if fixture.shared() {
        let _guard = said.watch(&*other, b"w", b"x");
        let lease = Some(kv.lease());
        commit(&*kv, |txn| {
            txn.ops.push(crate::kv::Op::Put {
                key: b"w7".to_vec(),
                value: vec![],
                lease,
            });
        });
        let version = value(&*kv, b"w7").map(|_| kv.version() + 1);
        kv.close().expect("it closes");
        said.expect(b"w7", version.expect("a value"));
    }
}

pub(super) fn a_watch_that_misses_something_reports_a_gap(fixture: &dyn Fixture) {
    if !fixture.shared() {
        return;
    }
    let (kv, other) = (fixture.session(), fixture.session());
    let said = Said::default();
    let _guard = said.watch(&*kv, b"w", b"x");
    if !fixture.break_watches(true) {
        return;
    }
    let version = put(&*other, b"w1", b"");
    fixture.break_watches(false);
    said.expect(b"w1", version);
}

/// Reads show the truth, whatever a watch has said.
pub(super) fn a_late_watch_makes_no_read_stale(fixture: &dyn Fixture) {
    if !fixture.shared() {
        return;
    }
    let (kv, other) = (fixture.session(), fixture.session());
    let said = Said::default();
    let _guard = said.watch(&*kv, b"w", b"x");
    fixture.lag_watches(true);
    let mut versions = Vec::new();
    for number in 0..20 {
        let key = numbered("w", number % 4);
        let bytes = number.to_be_bytes();
        let _ = value(&*kv, &key);
        versions.push((key.clone(), put(&*other, &key, &bytes)));
        assert_eq!(value(&*kv, &key), Some(bytes.to_vec()), "a stale read");
    }
    fixture.lag_watches(false);
    for (key, version) in versions {
        said.expect(&key, version);
    }
}
