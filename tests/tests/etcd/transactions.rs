//! Transactions, word for word.

use shale_index::engine::etcd::EtcdServer;
use shale_index::engine::replicated::server::{
    RawCompare, RawOp, RawPair, RawTxn, Revision, Server, ServerError, Test,
};
use shale_tests::{Case, Failure, Outcome, ensure, ensure_eq};

use crate::{PATIENCE, change, delete, get, key, look, put, range, single, values};

fn holds(server: &EtcdServer, key: &str, end: Option<&str>, test: Test) -> Outcome<bool> {
    let compare = RawCompare {
        key: key.into(),
        end: end.map(Into::into),
        test,
    };
    let txn = RawTxn {
        compares: vec![compare],
        ..RawTxn::default()
    };
    Ok(server.txn(&txn, PATIENCE)?.held)
}

pub(crate) fn conditions(case: &Case) -> Outcome {
    let (_cluster, server) = single(case)?;
    let first = server.txn(&change(vec![put("a", "1"), put("b", "1")]), PATIENCE)?;
    ensure!(first.held, "a transaction without conditions");
    let second = server.txn(&change(vec![put("b", "2")]), PATIENCE)?;
    let (first, second) = (first.revision, second.revision);
    ensure!(first < second, "revisions grow: {first}, {second}");
    let cases: &[(&str, Option<&str>, Test, bool)] = &[
        ("a", None, Test::Absent, false),
        ("x", None, Test::Absent, true),
        ("a", None, Test::Exists, true),
        ("x", None, Test::Exists, false),
        ("b", None, Test::WrittenBy(second), true),
        ("b", None, Test::WrittenBy(first), false),
        ("x", None, Test::WrittenBy(0), true),
        ("b", None, Test::CreatedBy(first), true),
        ("b", None, Test::CreatedBy(second), false),
        ("b", None, Test::NotAfter(second), true),
        ("b", None, Test::NotAfter(first), false),
        ("x", None, Test::NotAfter(0), true),
        ("b", None, Test::NotAfter(u64::MAX), true),
        // All keys of a range.
        ("a", Some("c"), Test::Exists, true),
        ("a", Some("c"), Test::Absent, false),
        ("a", Some("c"), Test::NotAfter(second), true),
        ("a", Some("c"), Test::NotAfter(first), false),
        ("a", Some("b"), Test::NotAfter(first), true),
        ("a", Some("c"), Test::CreatedBy(first), true),
        ("a", Some("c"), Test::WrittenBy(second), false),
        // A range without keys is one key that does not exist.
        ("x", Some("z"), Test::Absent, true),
        ("x", Some("z"), Test::Exists, false),
        ("x", Some("z"), Test::NotAfter(0), true),
        ("a", Some("a"), Test::Absent, true),
        ("b", Some("a"), Test::Absent, true),
        ("", Some("\0"), Test::Absent, true),
        ("", Some("b"), Test::Exists, true),
    ];
    for (key, end, test, expected) in cases {
        let found = holds(&server, key, *end, *test)?;
        ensure_eq!(found, *expected, "{key:?}..{end:?} {test:?}");
    }
    // All of several must hold.
    let compare = |key: &str, test| RawCompare {
        key: key.into(),
        end: None,
        test,
    };
    let txn = RawTxn {
        compares: vec![compare("a", Test::Exists), compare("b", Test::Absent)],
        ops: vec![put("a", "wrong")],
        ..RawTxn::default()
    };
    ensure!(!server.txn(&txn, PATIENCE)?.held, "one of two conditions");
    ensure_eq!(get(&server, "a")?.as_deref(), Some("1"));
    Ok(())
}

pub(crate) fn reads(case: &Case) -> Outcome {
    let (_cluster, server) = single(case)?;
    let begun = server.txn(&change(vec![put("a", "1"), put("b", "1")]), PATIENCE)?;
    let mut txn = RawTxn {
        compares: vec![RawCompare {
            key: b"c".to_vec(),
            end: None,
            test: Test::Absent,
        }],
        ops: vec![put("a", "2"), delete("b"), put("c", "2")],
        reads: vec![key("a"), range("a", "z"), key("c")],
        otherwise: vec![key("c"), range("a", "b")],
    };
    let answer = server.txn(&txn, PATIENCE)?;
    ensure!(answer.held, "c is absent");
    ensure_eq!(values(&answer, 0), ["1"]);
    ensure_eq!(values(&answer, 1), ["1", "1"]);
    ensure_eq!(values(&answer, 2), [""; 0]);
    ensure_eq!(answer.pages.len(), 3);
    let pair = RawPair {
        key: b"a".to_vec(),
        value: b"1".to_vec(),
        written: begun.revision,
        created: begun.revision,
        lease: 0,
    };
    ensure_eq!(answer.pages[0].pairs, [pair]);
    ensure_eq!(answer.revision, begun.revision + 1);
    // The second time the condition does not hold: the other reads, and no change.
    txn.ops = vec![put("a", "3")];
    let answer = server.txn(&txn, PATIENCE)?;
    ensure!(!answer.held, "c exists");
    ensure_eq!(values(&answer, 0), ["2"]);
    ensure_eq!(values(&answer, 1), ["2"]);
    ensure_eq!(answer.revision, begun.revision + 1);
    // The past, and pages.
    let mut past = range("a", "z");
    past.revision = begun.revision;
    let mut page = range("a", "z");
    page.limit = 1;
    let answer = server.txn(&look(vec![past, page, range("x", "z")]), PATIENCE)?;
    ensure_eq!(values(&answer, 0), ["1", "1"]);
    ensure!(!answer.pages[0].more, "a whole page");
    ensure_eq!(values(&answer, 1), ["2"]);
    ensure!(answer.pages[1].more, "a page that was cut");
    ensure_eq!(answer.pages[2].pairs.len(), 0);
    // More than gRPC sends at once by default.
    let large = "x".repeat(1 << 20);
    for n in 0..6 {
        server.txn(&change(vec![put(&format!("large{n}"), &large)]), PATIENCE)?;
    }
    let answer = server.txn(&look(vec![range("large", "m")]), PATIENCE)?;
    ensure_eq!(answer.pages[0].pairs.len(), 6);
    Ok(())
}

pub(crate) fn ranges(case: &Case) -> Outcome {
    let (_cluster, server) = single(case)?;
    let everything = || range("", "\u{7f}");
    let fill = || server.txn(&change(vec![put("a", "a"), put("b", "b")]), PATIENCE);
    let delete_range = |key: &str, end: &str| RawOp::Delete {
        key: key.into(),
        end: Some(end.into()),
    };
    for (key, end, left) in [
        ("a", "b", 1),
        ("a", "c", 0),
        ("", "b", 1),
        ("a", "", 2),
        ("a", "\0", 2),
        ("b", "a", 2),
        ("a", "a", 2),
        ("", "\0", 2),
    ] {
        fill()?;
        let look_first = server.txn(&look(vec![range(key, end)]), PATIENCE)?;
        ensure_eq!(
            look_first.pages[0].pairs.len(),
            2 - left,
            "{key:?}..{end:?}"
        );
        let ops = vec![delete_range(key, end), put("c", "c")];
        server.txn(&change(ops), PATIENCE)?;
        let answer = server.txn(&look(vec![everything()]), PATIENCE)?;
        ensure_eq!(answer.pages[0].pairs.len(), left + 1, "{key:?}..{end:?}");
    }
    Ok(())
}

pub(crate) fn refusals(case: &Case) -> Outcome {
    let (_cluster, server) = single(case)?;
    let refused = |txn: &RawTxn, what: &str| match server.txn(txn, PATIENCE) {
        Err(ServerError::Refused(reason)) => Ok(reason),
        other => Err(Failure::new(format!("{what}: {other:?}"))),
    };
    let twice = change(vec![put("a", "1"), put("a", "2")]);
    refused(&twice, "a key twice")?;
    let put_into_deleted = change(vec![
        RawOp::Delete {
            key: b"a".to_vec(),
            end: Some(b"c".to_vec()),
        },
        put("b", "1"),
    ]);
    refused(&put_into_deleted, "a put into a deleted range")?;
    let limits = server.limits();
    let many = |count: usize| change((0..count).map(|n| put(&format!("k{n}"), "")).collect());
    refused(&many(limits.ops + 1), "too many operations")?;
    server.txn(&many(limits.ops), PATIENCE)?;
    refused(
        &change(vec![put("a", &"x".repeat(2 << 20))]),
        "a large value",
    )?;
    refused(
        &change(vec![put("a", &"x".repeat(8 << 20))]),
        "a very large value",
    )?;
    refused(&change(vec![put("", "x")]), "an empty key")?;
    // As much as the limits allow, in as many operations as they allow.
    let value = "x".repeat(limits.bytes / limits.ops - 8);
    let full = change(
        (0..limits.ops)
            .map(|n| put(&format!("{n:08}"), &value))
            .collect(),
    );
    server.txn(&full, PATIENCE)?;
    ensure_eq!(get(&server, "a")?, None);
    Ok(())
}

pub(crate) fn compacted(case: &Case) -> Outcome {
    let (cluster, server) = single(case)?;
    let first: Revision = server.txn(&change(vec![put("a", "1")]), PATIENCE)?.revision;
    let second = server.txn(&change(vec![put("a", "2")]), PATIENCE)?.revision;
    cluster.compact(second)?;
    let at = |revision| {
        let mut read = key("a");
        read.revision = revision;
        look(vec![read])
    };
    ensure_eq!(
        server.txn(&at(first), PATIENCE),
        Err(ServerError::Compacted)
    );
    ensure_eq!(values(&server.txn(&at(second), PATIENCE)?, 0), ["2"]);
    // Also beside a change, which then does not happen.
    let mut txn = at(first);
    txn.ops = vec![put("a", "3")];
    ensure_eq!(server.txn(&txn, PATIENCE), Err(ServerError::Compacted));
    ensure_eq!(get(&server, "a")?.as_deref(), Some("2"));
    Ok(())
}
