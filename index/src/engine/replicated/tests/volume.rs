//! What the keys of a volume come to: slots, merged requests, imports.

use std::sync::Arc;
use std::time::Duration;

use super::super::memory::{Fault, MemoryServer};
use super::super::{Options, Replicated, import};
use super::{Hooked, adding, open, options, put, raw_keys, sum};
use crate::Error;
use crate::kv::{Import, Kv, Txn, Versioned};

#[test]
fn transactions_that_wait_for_a_lane_share_requests() {
    let server = MemoryServer::new();
    let kv = open(&server.client());
    let frozen = open(&server);
    let before = server.requests();
    server.freeze();
    std::thread::scope(|scope| {
        for number in 0..64 {
            let kv = &frozen;
            let work = move || kv.commit(&put(&[b'k', number])).unwrap();
            scope.spawn(work);
        }
        while server.held() < usize::from(options().lanes) {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(200));
        server.thaw();
    });
    let requests = server.requests() - before;
    assert!(requests < 32, "{requests} requests for 64 transactions");
    assert_eq!(kv.range(b"k", b"l", 100).unwrap().len(), 64);
}

#[test]
fn slots_of_ended_sessions_are_merged_and_nothing_is_lost() {
    let server = MemoryServer::new();
    let kv = open(&server.client());
    kv.commit(&adding(b"n", 1)).unwrap();
    for _ in 0..40 {
        let dead = open(&server.client());
        dead.commit(&adding(b"n", 2)).unwrap();
        dead.close().unwrap();
    }
    let live = open(&server.client());
    live.commit(&adding(b"n", 100)).unwrap();
    let slots = || raw_keys(&server, b"/v/kn", b"/v/ko");
    assert_eq!((sum(&kv, b"n"), slots()), (181, 42));
    assert_eq!(kv.merge_slots(b"n").unwrap(), 40);
    assert_eq!((sum(&kv, b"n"), slots()), (181, 2));
    assert_eq!(live.merge_slots(b"n").unwrap(), 0);
    for session in [&kv, &live] {
        session.commit(&adding(b"n", 1)).unwrap();
    }
    assert_eq!(sum(&live, b"n"), 183);
    kv.close().unwrap();
    server.inject_randomly(1, 300);
    let last = open(&server);
    std::thread::scope(|scope| {
        for session in [&live, &last] {
            scope.spawn(|| session.merge_slots(b"n").unwrap());
            scope.spawn(|| session.commit(&adding(b"n", 1)).unwrap());
        }
    });
    assert_eq!(sum(&live, b"n"), 185);
}

#[test]
fn slots_that_another_session_merges_meanwhile_are_counted_once() {
    let server = MemoryServer::new();
    for _ in 0..3 {
        let dead = open(&server.client());
        dead.commit(&adding(b"n", 1)).unwrap();
        dead.close().unwrap();
    }
    let other = open(&server.client());
    let hooked = Hooked {
        server: server.client(),
        hook: Arc::new(move |_| assert_eq!(other.merge_slots(b"n").unwrap(), 3)),
    };
    let kv = open(&hooked);
    // The look, then the transaction.
    hooked.server.inject([Fault::Twice(1), Fault::LoseRequest]);
    assert_eq!(kv.merge_slots(b"n").unwrap(), 0);
    assert_eq!(sum(&kv, b"n"), 3);
}

#[test]
fn volumes_with_other_prefixes_are_not_touched() {
    let server = MemoryServer::new();
    let kv = open(&server);
    let options = Options {
        prefix: b"/w/".to_vec(),
        ..options()
    };
    let other = Replicated::open(server.client(), options).unwrap();
    kv.commit(&put(b"a")).unwrap();
    let mut txn = Txn::new();
    txn.delete_range(vec![], vec![0xff; 20]);
    other.commit(&txn).unwrap();
    assert!(kv.get(b"a").unwrap().is_some());
    let mut keys = 0;
    let count = &mut |_: &[u8], _: &Versioned| {
        keys += 1;
        Ok(())
    };
    other.dump(count).unwrap();
    kv.dump(count).unwrap();
    assert_eq!(keys, 1);
}

fn imported(key: &[u8], version: u64, value: Vec<u8>) -> Import {
    Import {
        key: key.to_vec(),
        value: Versioned {
            value: Arc::from(value),
            version,
            created: version,
        },
        counter: false,
    }
}

#[test]
fn a_volume_with_an_incomplete_import_cannot_be_opened() {
    let server = MemoryServer::new();
    let pairs = [
        imported(b"a", 1, vec![]),
        imported(b"b", 2, vec![0; 2 << 20]),
    ];
    let failed = import(server.clone(), options(), pairs.clone(), 0);
    assert!(matches!(failed, Err(Error::CommitTooLarge { .. })));
    let refused = Replicated::open(server.clone(), options());
    assert!(matches!(refused, Err(Error::Refused(_))));
    let refused = import(server.clone(), options(), pairs[..1].to_vec(), 0);
    assert!(matches!(refused, Err(Error::Refused(_))));
}

#[test]
fn an_import_below_the_old_versions_is_refused() {
    let server = MemoryServer::new();
    let refused = import(server.clone(), options(), [imported(b"a", 1, vec![])], 1000);
    assert!(matches!(refused, Err(Error::Refused(_))));
    assert_eq!(raw_keys(&server, b"/v/", b"/v0"), 0);
}

#[test]
fn a_full_server_is_reported_as_a_full_device() {
    let server = MemoryServer::new();
    let kv = open(&server);
    server.set_full(true);
    match kv.commit(&put(b"a")) {
        Err(Error::Io { source, .. }) => {
            assert_eq!(source.kind(), std::io::ErrorKind::StorageFull);
        }
        other => panic!("{other:?}"),
    }
    server.set_full(false);
    kv.commit(&put(b"a")).unwrap();
}
