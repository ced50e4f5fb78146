//! Random transactions, reopens, kills and lost bases: always the state of the reference.

use proptest::prelude::*;
use shale_index::Kv;
use shale_index::engine::{Options, Tuning};
use shale_index::kv::{Compare, Counter, Limits, Op, Txn, Want};
use tempfile::TempDir;

use crate::support::*;

#[derive(Clone, Debug)]
enum Act {
    Commit(Txn),
    Sync,
    Checkpoint,
    Snapshot,
    /// Close and open again.
    Close,
    /// Forget the engine and open again.
    Drop,
    /// Continue with a copy of the files of a killed process.
    Kill,
    /// Like `Kill`, and the base is lost.
    LoseView,
    /// A look through a read-only engine.
    ReadOnly,
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(b'a'..=b'd', 1..4)
}

/// Keys that are counters, among the others in order.
fn counter() -> impl Strategy<Value = Vec<u8>> {
    prop::sample::select(vec![b"b+".to_vec(), b"c+".to_vec()])
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => prop::collection::vec(any::<u8>(), 0..120),
        1 => (any::<u8>(), 1900usize..9000).prop_map(|(byte, len)| vec![byte; len]),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let lease = prop::option::weighted(0.1, Just(shale_index::kv::Lease(0)));
    prop_oneof![
        8 => (key(), value(), lease).prop_map(|(key, value, lease)| Op::Put { key, value, lease }),
        3 => key().prop_map(Op::Delete),
        1 => (key(), key()).prop_map(|(start, end)| Op::DeleteRange { start, end }),
        3 => (counter(), any::<i8>(), 0i64..50).prop_map(|(key, sum, latest)| Op::Add {
            key,
            delta: Counter { latest, ..Counter::of(sum.into()) },
        }),
        1 => counter().prop_map(Op::DropCounter),
    ]
}

fn compare() -> impl Strategy<Value = Compare> {
    prop_oneof![
        key().prop_map(Compare::Absent),
        key().prop_map(Compare::Exists),
        (key(), 0u64..40).prop_map(|(key, version)| Compare::VersionIs(key, version)),
        (key(), 0u64..40).prop_map(|(key, version)| Compare::CreatedAt(key, version)),
        (key(), key()).prop_map(|(start, end)| Compare::RangeEmpty { start, end }),
        (key(), key(), 0u64..40).prop_map(|(start, end, version)| Compare::RangeNotNewer {
            start,
            end,
            version,
        }),
    ]
}

fn txn() -> impl Strategy<Value = Txn> {
    let compares = prop::collection::vec(compare(), 0..2);
    let compares = prop_oneof![3 => Just(vec![]), 1 => compares];
    (compares, prop::collection::vec(op(), 0..6)).prop_map(|(compares, ops)| {
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
        txn
    })
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        40 => txn().prop_map(Act::Commit),
        4 => Just(Act::Sync),
        4 => Just(Act::Checkpoint),
        2 => Just(Act::Snapshot),
        1 => Just(Act::Close),
        1 => Just(Act::Drop),
        1 => Just(Act::Kill),
        1 => Just(Act::LoseView),
        1 => Just(Act::ReadOnly),
    ]
}

fn check(kv: &dyn Kv, model: &Model) {
    assert_eq!(kv.version(), model.kv.version());
    assert_eq!(state_of(kv), state_of(&model.kv));
}

fn run(acts: &[Act], options: Options) {
    let mut dir = TempDir::new().unwrap();
    let mut model = Model::new();
    let (mut kv, _) = open(dir.path(), options);
    for act in acts {
        match act {
            Act::Commit(txn) => {
                assert_eq!(
                    kv.commit(&under(txn, kv.lease())).unwrap(),
                    model.commit(txn)
                );
                for op in &txn.ops {
                    let Some(key) = op.key() else {
                        continue;
                    };
                    assert_eq!(kv.get(key).unwrap(), model.kv.get(key).unwrap());
                }
                let wants = [
                    Want::Range {
                        start: b"b".to_vec(),
                        end: b"cc".to_vec(),
                        limit: 3,
                    },
                    Want::Key(b"a".to_vec()),
                    Want::Counter(b"b+".to_vec()),
                    Want::Range {
                        start: b"c".to_vec(),
                        end: b"a".to_vec(),
                        limit: 3,
                    },
                ];
                assert_eq!(
                    kv.get_many(&wants).unwrap(),
                    model.kv.get_many(&wants).unwrap()
                );
                continue;
            }
            Act::Sync => kv.sync(kv.version()).unwrap(),
            Act::Checkpoint => kv.checkpoint().unwrap(),
            Act::Snapshot => kv.snapshot().unwrap(),
            Act::Close => {
                kv.close().unwrap();
                model.reopen();
                drop(kv);
                let (next, recovery) = open(dir.path(), options);
                assert_eq!((recovery.records, recovery.torn_bytes), (0, 0));
                assert_eq!((recovery.rebuilt, recovery.leases_ended), (None, 0));
                kv = next;
            }
            Act::Drop => {
                model.reopen();
                drop(kv);
                kv = open(dir.path(), options).0;
            }
            Act::Kill | Act::LoseView => {
                if options.tuning == Tuning::Tiny {
                    // Leaves the background thread nothing to do while the files are copied: a
                    // copy that races it is not what a killed process leaves.
                    kv.checkpoint().unwrap();
                    kv.snapshot().unwrap();
                }
                let copy = TempDir::new().unwrap();
                copy_dir(dir.path(), copy.path());
                let lose = matches!(act, Act::LoseView);
                if lose {
                    std::fs::remove_dir_all(copy.path().join("index/sled")).unwrap();
                }
                drop(kv);
                model.reopen();
                let (next, recovery) = open(copy.path(), options);
                assert!(!lose || recovery.version == 0 || recovery.rebuilt.is_some());
                (dir, kv) = (copy, next);
            }
            Act::ReadOnly => {
                let read_only = Options {
                    read_only: true,
                    ..options
                };
                if options.tuning == Tuning::TinyQuiet {
                    let before = listing(dir.path());
                    let (reader, _) = open(dir.path(), read_only);
                    assert_eq!(state_of(&reader), state_of(&model.kv.reopen()));
                    assert_eq!(listing(dir.path()), before);
                }
            }
        }
        check(&kv, &model);
    }
    kv.close().unwrap();
    drop(kv);
    model.reopen();
    check(&open(dir.path(), options).0, &model);
}

fn listing(path: &std::path::Path) -> Vec<(std::path::PathBuf, u64)> {
    let mut names: Vec<_> = std::fs::read_dir(path.join("index"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.path(), entry.metadata().unwrap().len()))
        .collect();
    names.sort();
    names
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn random_transactions_match_the_reference(acts in prop::collection::vec(act(), 1..120)) {
        run(&acts, QUIET);
    }

    #[test]
    fn random_transactions_match_while_the_background_works(
        acts in prop::collection::vec(act(), 1..120),
    ) {
        run(&acts, TINY);
    }
}
