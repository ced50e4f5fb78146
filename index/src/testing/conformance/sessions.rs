//! The lives of sessions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Fixture, add, commit, eventually, in_threads, put, sum, value};
use crate::Error;
use crate::kv::{Counter, Kv, Op, SessionState, Txn};

fn put_leased(kv: &dyn Kv, key: &[u8]) {
    commit(kv, |txn| {
        txn.ops.push(Op::Put {
            key: key.to_vec(),
            value: b"leased".to_vec(),
            lease: Some(kv.lease()),
        });
    });
}

pub(super) fn leased_keys_go_with_their_session(fixture: &dyn Fixture) {
    if !fixture.shared() {
        return;
    }
    let (one, other) = (fixture.session(), fixture.session());
    assert_ne!(one.lease(), other.lease());
    put_leased(&*one, b"one");
    put_leased(&*other, b"other");
    put_leased(&*one, b"bound no more");
    put(&*one, b"bound no more", b"");
    put(&*one, b"never bound", b"");
    one.close().expect("it closes");
    assert_eq!(value(&*other, b"one"), None, "outlives its session");
    for key in [&b"other"[..], b"bound no more", b"never bound"] {
        assert!(value(&*other, key).is_some(), "{}", key.escape_ascii());
    }
    assert_eq!(other.session(), SessionState::Alive);
}

pub(super) fn a_foreign_lease_is_refused(fixture: &dyn Fixture) {
    let kv = fixture.session();
    let mut txn = Txn::new();
    txn.ops.push(Op::Put {
        key: b"a".to_vec(),
        value: vec![],
        lease: Some(crate::kv::Lease(kv.lease().0 + 1)),
    });
    assert!(matches!(kv.commit(&txn), Err(Error::ForeignLease)));
    assert_eq!(value(&*kv, b"a"), None);
}

/// A session is frozen while it commits, until its lease has ended. What it sent, and what it
/// sends when it wakes, changes nothing, and it is told so.
pub(super) fn an_ended_session_commits_nothing(fixture: &dyn Fixture) {
    if !fixture.shared() {
        return;
    }
    let (zombie, other) = (fixture.session(), fixture.session());
    put_leased(&*zombie, b"leased");
    put(&*zombie, b"data", b"before");
    add(&*zombie, b"n", 1);
    let told = Arc::new(AtomicUsize::new(0));
    let listener = Arc::clone(&told);
    zombie.on_end(Box::new(move |_| {
        listener.fetch_add(1, Ordering::SeqCst);
    }));
    if !fixture.freeze_past_lease(zombie.lease()) {
        return;
    }
    eventually("the leased key is gone", || {
        value(&*other, b"leased").is_none()
    });
    in_threads(4, |thread| match thread {
        0 => {
            put(&*other, b"data", b"after");
            fixture.thaw(zombie.lease());
        }
        _ => {
            let mut txn = Txn::new();
            txn.put(b"data".to_vec(), b"zombie".to_vec())
                .add(b"n".to_vec(), Counter::of(100));
            if thread == 1 {
                txn.put(vec![b'z'], vec![]);
            }
            let refused = zombie.commit(&txn);
            assert!(
                matches!(refused, Err(Error::SessionEnded(_))),
                "{refused:?}"
            );
        }
    });
    assert_eq!(value(&*other, b"data"), Some(b"after".to_vec()));
    assert_eq!(sum(&*other, b"n"), Some(1));
    assert_eq!(value(&*other, b"z"), None);
    assert!(matches!(zombie.session(), SessionState::Ended(_)));
    eventually("the listener is told", || told.load(Ordering::SeqCst) == 1);
    // The state is shared, and may still be looked at.
    assert_eq!(value(&*zombie, b"data"), Some(b"after".to_vec()));
    // What it added before still counts, for the next session too.
    let next = fixture.session();
    add(&*next, b"n", 1);
    assert_eq!(sum(&*other, b"n"), Some(2));
}

pub(super) fn a_closed_session_refuses_work(fixture: &dyn Fixture) {
    let kv = fixture.session();
    put(&*kv, b"a", b"");
    kv.sync(kv.version()).expect("it syncs");
    kv.on_end(Box::new(|_| panic!("told of an end that was asked for")));
    kv.close().expect("it closes");
    let mut txn = Txn::new();
    txn.put(b"b".to_vec(), vec![]);
    assert!(kv.commit(&txn).is_err());
    assert!(kv.get(b"a").is_err());
    if fixture.shared() {
        let next = fixture.session();
        assert!(value(&*next, b"a").is_some());
        assert_eq!(value(&*next, b"b"), None);
    }
}

pub(super) fn a_session_survives_the_death_of_a_leader(fixture: &dyn Fixture) {
    if !fixture.shared() {
        return;
    }
    let kv = fixture.session();
    let done = AtomicUsize::new(0);
    in_threads(5, |thread| {
        if thread == 0 {
            while done.load(Ordering::SeqCst) < 40 {
                std::thread::yield_now();
            }
            fixture.kill_leader();
            return;
        }
        for round in 0..100 {
            add(&*kv, b"n", 1);
            put(&*kv, &[b'k', thread as u8, round], b"");
            done.fetch_add(1, Ordering::SeqCst);
        }
    });
    assert_eq!(sum(&*kv, b"n"), Some(400));
    let keys = kv.range(b"k", b"l", usize::MAX).expect("the engine reads");
    assert_eq!(keys.len(), 400);
}
