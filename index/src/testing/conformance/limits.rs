//! What transactions may be.

use super::{Fixture, commit, numbered, put, sum, value};
use crate::Error;
use crate::kv::{Compare, Counter, Txn};

pub(super) fn a_key_that_is_changed_twice_is_refused(fixture: &dyn Fixture) {
    let kv = fixture.session();
    let a = || b"a".to_vec();
    let refused = |build: &dyn Fn(&mut Txn)| {
        let mut txn = Txn::new();
        build(&mut txn);
        let refused = matches!(kv.commit(&txn), Err(Error::KeyTwice(_)));
        assert!(refused, "{txn:?}");
    };
    refused(&|txn| {
        txn.put(a(), vec![]).put(a(), vec![]);
    });
    refused(&|txn| {
        txn.put(a(), vec![]).delete(a());
    });
    refused(&|txn| {
        txn.delete(a()).delete(a());
    });
    refused(&|txn| {
        txn.delete_range(a(), b"b".to_vec()).put(a(), vec![]);
    });
    refused(&|txn| {
        txn.add(a(), Counter::of(1)).drop_counter(a());
    });
    assert_eq!(value(&*kv, b"a"), None);
    // An operation on a key and a compare of it are no clash.
    put(&*kv, b"a", b"");
    commit(&*kv, |txn| {
        txn.compare(Compare::Exists(a())).delete(a());
    });
}

pub(super) fn a_transaction_at_the_limits_works_and_beyond_is_refused(fixture: &dyn Fixture) {
    let kv = fixture.session();
    let limits = kv.limits();
    if limits.ops < usize::MAX {
        assert!(limits.ops >= 32 && limits.compares >= 16, "{limits:?}");
        let full = |extra_ops: usize, extra_compares: usize| {
            let mut txn = Txn::new();
            for number in 0..limits.compares + extra_compares {
                txn.compare(Compare::Absent(numbered("absent", number)));
            }
            for number in 0..limits.ops + extra_ops {
                txn.add(numbered("n", number), Counter::of(1));
            }
            txn
        };
        // Twice, because the second time every slot exists.
        for round in 1..=2 {
            kv.commit(&full(0, 0)).expect("a transaction at the limits");
            assert_eq!(sum(&*kv, &numbered("n", limits.ops - 1)), Some(round));
        }
        for (ops, compares) in [(1, 0), (0, 1)] {
            let refused = kv.commit(&full(ops, compares));
            assert!(matches!(refused, Err(Error::TooManyOps { .. })));
        }
        assert_eq!(sum(&*kv, &numbered("n", 0)), Some(2));
    }
    if limits.bytes < 64 << 20 {
        let sized = |bytes: usize| {
            let mut txn = Txn::new();
            txn.put(b"large".to_vec(), vec![7; bytes - 5]);
            txn
        };
        kv.commit(&sized(limits.bytes))
            .expect("as large as it may be");
        let found = value(&*kv, b"large").expect("a value");
        assert_eq!(found.len(), limits.bytes - 5);
        // An engine may take more than it says, but nothing else may go wrong.
        let larger = kv.commit(&sized(limits.bytes + 1));
        assert!(matches!(larger, Ok(_) | Err(Error::CommitTooLarge { .. })));
    }
}
