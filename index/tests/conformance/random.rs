//! Random transactions of several sessions, with shrinking.

use std::sync::Arc;

use proptest::prelude::*;
use shale_index::engine::ReferenceKv;
use shale_index::kv::{Compare, Counter, Limits, Op, Txn};
use shale_index::testing::conformance::model::{Alone, Step, run_serially};

use crate::fixtures::Servers;

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(b'a'..=b'c', 1..3)
}

fn counter() -> impl Strategy<Value = Vec<u8>> {
    prop::sample::select(vec![b"a+".to_vec(), b"c+".to_vec()])
}

fn op() -> impl Strategy<Value = Op> {
    let value = prop::collection::vec(any::<u8>(), 0..20);
    prop_oneof![
        6 => (key(), value).prop_map(|(key, value)| Op::Put { key, value, lease: None }),
        2 => key().prop_map(Op::Delete),
        1 => (key(), key()).prop_map(|(start, end)| Op::DeleteRange { start, end }),
        4 => (counter(), any::<i8>(), 0i64..50).prop_map(|(key, sum, latest)| Op::Add {
            key,
            delta: Counter { latest, ..Counter::of(sum.into()) },
        }),
        1 => counter().prop_map(Op::DropCounter),
    ]
}

fn compare() -> impl Strategy<Value = Compare> {
    let version = any::<u16>().prop_map(u64::from);
    prop_oneof![
        key().prop_map(Compare::Absent),
        key().prop_map(Compare::Exists),
        (key(), version.clone()).prop_map(|(key, version)| Compare::VersionIs(key, version)),
        (key(), version.clone()).prop_map(|(key, version)| Compare::CreatedAt(key, version)),
        (key(), key()).prop_map(|(start, end)| Compare::RangeEmpty { start, end }),
        (key(), key(), version).prop_map(|(start, end, version)| Compare::RangeNotNewer {
            start,
            end,
            version,
        }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let compares = prop::collection::vec(compare(), 0..2);
    let ops = prop::collection::vec(op(), 0..5);
    (0..3usize, compares, ops).prop_map(|(session, compares, ops)| {
        let mut txn = Txn {
            compares,
            ops: Vec::new(),
        };
        for op in ops {
            txn.ops.push(op);
            if txn.check(&Limits::NONE).is_err() {
                txn.ops.pop();
            }
        }
        Step { session, txn }
    })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn the_checker_agrees_with_the_reference(steps in steps()) {
        run_serially(&Alone(Arc::new(ReferenceKv::new())), &steps);
    }

    #[test]
    fn transactions_of_several_sessions_match_the_reference(steps in steps()) {
        run_serially(&Servers::new(), &steps);
    }

    #[test]
    fn transactions_match_the_reference_with_an_unreliable_server(
        steps in steps(),
        seed: u64,
    ) {
        run_serially(&Servers::unreliable(seed, 200), &steps);
    }
}
