//! Requests to a shared engine: what every operation may cost.

use std::sync::Arc;

use super::tests::{file_node, limits};
use super::{Namespace, ROOT, RecordCommit};
use crate::engine::ReferenceKv;
use crate::schema::{CommitRecord, Effect, Time};
use crate::{Error, Kv};

/// Two sessions, so that nothing is known because only one is there.
fn sessions() -> (ReferenceKv, Namespace, Namespace) {
    let kv = ReferenceKv::shared(limits());
    let open = || Namespace::open(Arc::new(kv.another()) as Arc<dyn Kv>, 0, (0, 0)).unwrap();
    let (a, b) = (open(), open());
    (kv, a, b)
}

/// Requests that an operation makes.
fn count<T>(kv: &ReferenceKv, operation: impl FnOnce() -> T) -> u64 {
    let before = kv.requests();
    operation();
    kv.requests() - before
}

#[test]
fn a_name_that_was_seen_before_is_looked_up_by_one_request() {
    let (kv, a, b) = sessions();
    let ino = a.create(ROOT, b"f", &file_node()).unwrap().ino;
    assert_eq!(count(&kv, || b.lookup(ROOT, b"f").unwrap()), 2, "cold");
    assert_eq!(count(&kv, || b.lookup(ROOT, b"f").unwrap()), 1);
    assert_eq!(count(&kv, || b.inode(ino).unwrap()), 1);
    // What is remembered is never an answer by itself.
    a.unlink(ROOT, b"f").unwrap();
    assert!(matches!(b.lookup(ROOT, b"f"), Err(Error::NotFound)));
    a.create(ROOT, b"f", &file_node()).unwrap();
    assert_ne!(b.lookup(ROOT, b"f").unwrap().ino, ino);
}

#[test]
fn a_name_is_created_and_removed_by_two_requests_each() {
    let (kv, a, b) = sessions();
    // The kernel looks a name up before it creates or removes it.
    let create = |ns: &Namespace, name: &[u8]| {
        count(&kv, || {
            assert!(matches!(ns.lookup(ROOT, name), Err(Error::NotFound)));
            ns.create(ROOT, name, &file_node()).unwrap();
        })
    };
    assert_eq!(create(&a, b"first"), 2);
    assert_eq!(create(&a, b"second"), 2);
    assert_eq!(create(&b, b"third"), 2, "beside another session");
    let unlink = |ns: &Namespace, name: &[u8]| {
        count(&kv, || {
            ns.lookup(ROOT, name).unwrap();
            ns.unlink(ROOT, name).unwrap();
        })
    };
    a.lookup(ROOT, b"first").unwrap();
    assert_eq!(unlink(&a, b"first"), 2);
    // What another session did meanwhile costs more requests, and is not lost.
    a.lookup(ROOT, b"second").unwrap();
    b.lookup(ROOT, b"second").unwrap();
    b.unlink(ROOT, b"second").unwrap();
    assert!(matches!(a.unlink(ROOT, b"second"), Err(Error::NotFound)));
    b.create(ROOT, b"fourth", &file_node()).unwrap();
    let again = a.create(ROOT, b"fourth", &file_node());
    assert!(matches!(again, Err(Error::Exists)));
}

#[test]
fn a_data_commit_is_one_request() {
    let (kv, a, b) = sessions();
    let ino = a.create(ROOT, b"f", &file_node()).unwrap().ino;
    let effect = Effect::Written {
        reached: 7,
        times: (Time::now(), Time::now()),
        stored: 0,
    };
    let record = CommitRecord {
        extents: Vec::new(),
        effect,
    };
    let commit = RecordCommit {
        record: &record,
        to_settle: true,
        packs: &[(crate::extent::PackId(1), 10)].into(),
    };
    for namespace in [&a, &b, &a] {
        let requests = count(&kv, || namespace.commit_record(ino, &commit).unwrap());
        assert_eq!(requests, 1);
    }
}

#[test]
fn a_thousand_names_with_their_inodes_are_listed_by_few_requests() {
    let (kv, a, b) = sessions();
    for number in 0..1000 {
        let name = format!("f{number}");
        a.create(ROOT, name.as_bytes(), &file_node()).unwrap();
    }
    let mut listed = 0;
    let requests = count(&kv, || {
        let mut cookie = 0;
        loop {
            let page = b.readdir(ROOT, cookie, 252).unwrap();
            for page in page.chunks(126) {
                listed += b.inodes(page).unwrap().iter().flatten().count();
            }
            let Some(last) = page.last().filter(|_| page.len() == 252) else {
                break;
            };
            cookie = last.cookie;
        }
    });
    assert_eq!(listed, 1000);
    assert!(requests <= 15, "{requests}");
}
