//! The beginning and the end of sessions.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::super::{Options, Replicated};
use super::{open, options, put, raw_keys};
use crate::Error;
use crate::engine::replicated::memory::MemoryServer;
use crate::kv::{Kv, SessionState};

#[test]
fn a_deadline_bounds_the_wait_for_servers() {
    let server = MemoryServer::new();
    let options = Options {
        deadline: Some(Duration::from_millis(50)),
        ..options()
    };
    let kv = Replicated::open(server.clone(), options).unwrap();
    server.disconnect(true);
    let refused = kv.commit(&put(b"a"));
    assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
    let refused = kv.get(b"a");
    assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
    server.disconnect(false);
    assert_eq!(kv.get(b"a").unwrap(), None);
    kv.commit(&put(b"a")).unwrap();
}

#[test]
fn a_session_without_any_answer_ends_by_the_local_clock() {
    let server = MemoryServer::new();
    let options = Options {
        ttl: Duration::from_millis(300),
        ..options()
    };
    let kv = Replicated::open(server.clone(), options).unwrap();
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(
        kv.session(),
        SessionState::Alive,
        "keepalives keep it alive"
    );
    let told = Arc::new(AtomicBool::new(false));
    let telling = Arc::clone(&told);
    kv.on_end(Box::new(move |_| telling.store(true, Ordering::SeqCst)));
    server.disconnect(true);
    let refused = kv.commit(&put(b"a"));
    assert!(
        matches!(refused, Err(Error::SessionEnded(_))),
        "{refused:?}"
    );
    assert!(told.load(Ordering::SeqCst));
    server.disconnect(false);
    assert!(kv.commit(&put(b"a")).is_err());
    assert_eq!(kv.get(b"a").unwrap(), None, "reads are still possible");
}

#[test]
fn a_keepalive_that_succeeds_is_no_proof_of_life() {
    let server = MemoryServer::new();
    server.lie_about_leases();
    let options = Options {
        ttl: Duration::from_millis(100),
        ..options()
    };
    let kv = Replicated::open(server.clone(), options).unwrap();
    server.expire(kv.lease().0.cast_signed());
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(kv.session(), SessionState::Alive, "it cannot know");
    let refused = kv.commit(&put(b"a"));
    assert!(
        matches!(refused, Err(Error::SessionEnded(_))),
        "{refused:?}"
    );
    assert_eq!(open(&server).get(b"a").unwrap(), None);
}

#[test]
fn a_session_has_a_number_of_its_own_and_leaves_no_keys_behind() {
    let server = MemoryServer::new();
    server.inject_randomly(7, 300);
    let mut numbers = Vec::new();
    for _ in 0..20 {
        let kv = open(&server);
        numbers.push(kv.number());
        kv.close().unwrap();
    }
    server.inject_randomly(0, 0);
    server.deliver();
    // Leases whose grant was not answered run out.
    server.pass(Duration::from_secs(60));
    assert!(numbers.is_sorted());
    numbers.dedup();
    assert_eq!(numbers.len(), 20);
    assert_eq!(raw_keys(&server, b"/v/", b"/v0"), 0);
}
