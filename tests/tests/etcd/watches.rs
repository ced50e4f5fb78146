//! Watches: what they report, and that they say when they may have missed something.

use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use shale_index::engine::etcd::EtcdServer;
use shale_index::engine::replicated::server::{RawEvent, Server};
use shale_tests::{Case, EtcdCluster, Outcome, Proxy, ensure, ensure_eq};

use crate::{PATIENCE, change, connect, connect_to, delete, put, single};

type Guard = Box<dyn std::any::Any + Send + Sync>;

fn watch(server: &EtcdServer, ranges: &[(&str, &str)]) -> Outcome<(Guard, Receiver<RawEvent>)> {
    let (sender, events) = channel();
    let bytes = |text: &str| text.as_bytes().to_vec();
    let ranges: Vec<_> = ranges
        .iter()
        .map(|(start, end)| (bytes(start), bytes(end)))
        .collect();
    let sink = Box::new(move |event| {
        let _ = sender.send(event);
    });
    Ok((server.watch(&ranges, sink)?, events))
}

fn changed(key: &str, revision: u64) -> RawEvent {
    let key = key.into();
    RawEvent::Changed { key, revision }
}

pub(crate) fn changes(case: &Case) -> Outcome {
    let (_cluster, server) = single(case)?;
    server.txn(&change(vec![put("a/old", "1")]), PATIENCE)?;
    let (guard, events) = watch(&server, &[("a/", "a0"), ("c/", "c0"), ("d", "d")])?;
    let first = server.txn(&change(vec![put("a/1", "1"), put("b/1", "1")]), PATIENCE)?;
    let second = server.txn(&change(vec![put("c/1", "1"), delete("a/old")]), PATIENCE)?;
    let mut found = Vec::new();
    for _ in 0..3 {
        found.push(events.recv_timeout(PATIENCE)?);
    }
    ensure!(found.contains(&changed("a/1", first.revision)), "{found:?}");
    ensure!(
        found.contains(&changed("c/1", second.revision)),
        "{found:?}"
    );
    ensure!(
        found.contains(&changed("a/old", second.revision)),
        "{found:?}"
    );
    // A quiet watch does not take silence for a failure.
    let quiet = events.recv_timeout(Duration::from_secs(7));
    ensure!(quiet.is_err(), "nothing changed: {quiet:?}");
    drop(guard);
    std::thread::sleep(Duration::from_millis(100));
    server.txn(&change(vec![put("a/2", "1")]), PATIENCE)?;
    let after = events.recv_timeout(Duration::from_millis(500));
    ensure!(after.is_err(), "the watch is over: {after:?}");
    Ok(())
}

pub(crate) fn gap(case: &Case) -> Outcome {
    let (cluster, direct) = single(case)?;
    let proxy = Proxy::start(cluster.address(0), 1)?;
    let server = connect_to(vec![proxy.endpoint()])?;
    let (_guard, events) = watch(&server, &[("a", "b")])?;
    let first = direct.txn(&change(vec![put("a", "1")]), PATIENCE)?;
    ensure_eq!(events.recv_timeout(PATIENCE)?, changed("a", first.revision));
    proxy.cut();
    direct.txn(&change(vec![put("a", "2")]), PATIENCE)?;
    let last = direct.txn(&change(vec![put("a", "3")]), PATIENCE)?;
    cluster.compact(last.revision)?;
    proxy.join();
    ensure_eq!(events.recv_timeout(PATIENCE)?, RawEvent::Gap);
    let after = direct.txn(&change(vec![put("a", "4")]), PATIENCE)?;
    ensure_eq!(events.recv_timeout(PATIENCE)?, changed("a", after.revision));
    Ok(())
}

pub(crate) fn frozen(case: &Case) -> Outcome {
    let cluster = EtcdCluster::start(&case.work().join("cluster"), 3)?;
    let direct = connect(&cluster)?;
    // It begins with the member that is frozen, and only knows the others as addresses.
    let leader = cluster.leader()?;
    let follower = (leader + 1) % cluster.size();
    let server = connect_to(vec![cluster.endpoint(follower), cluster.endpoint(leader)])?;
    let (_guard, events) = watch(&server, &[("a", "b")])?;
    let first = direct.txn(&change(vec![put("a", "1")]), PATIENCE)?;
    ensure_eq!(events.recv_timeout(PATIENCE)?, changed("a", first.revision));
    cluster.freeze(follower)?;
    let begun = Instant::now();
    let deadline = Duration::from_secs(15);
    // Whichever of the two it was on, it reports what comes next, or that it may have missed it.
    let later = connect_to(vec![cluster.endpoint(leader)])?;
    let second = later.txn(&change(vec![put("a", "2")]), PATIENCE)?;
    let found = events.recv_timeout(deadline)?;
    let is_right = found == RawEvent::Gap || found == changed("a", second.revision);
    ensure!(is_right, "{found:?} after {:?}", begun.elapsed());
    cluster.thaw(follower)
}
