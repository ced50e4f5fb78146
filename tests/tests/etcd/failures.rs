//! Members that die, hang or fill up, and answers that are lost.

use std::net::TcpListener;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use shale_index::engine::etcd::{Alarm, EtcdOptions, EtcdServer};
use shale_index::engine::replicated::server::{
    RawCompare, RawOp, RawTxn, Revision, Server, ServerError, Test,
};
use shale_tests::{
    Case, Context, EtcdCluster, Failure, Outcome, Proxy, ensure, ensure_eq, note, seed,
};

use crate::{PATIENCE, change, connect, connect_to, delete, get, key, look, put, single, values};

/// A key that one thread counts up, never twice for one step.
struct Count<'a> {
    server: &'a EtcdServer,
    key: String,
    value: u64,
    written: Revision,
    unknown: u64,
    longest: Duration,
}

impl<'a> Count<'a> {
    fn new(server: &'a EtcdServer, key: String) -> Self {
        Self {
            server,
            key,
            value: 0,
            written: 0,
            unknown: 0,
            longest: Duration::ZERO,
        }
    }

    /// One step. What became of a try without an answer is found out before the next one.
    fn step(&mut self) -> Outcome {
        let begun = Instant::now();
        let next = (self.value + 1).to_string();
        loop {
            let txn = RawTxn {
                compares: vec![RawCompare {
                    key: self.key.clone().into(),
                    end: None,
                    test: Test::WrittenBy(self.written),
                }],
                ops: vec![put(&self.key, &next)],
                ..RawTxn::default()
            };
            match self.server.txn(&txn, PATIENCE / 2) {
                Ok(answer) if answer.held => {
                    self.written = answer.revision;
                    break;
                }
                // An earlier try has happened after all.
                Ok(_) if self.unknown > 0 => {}
                Err(ServerError::Unknown(_)) => self.unknown += 1,
                other => return Err(Failure::new(format!("{} to {next}: {other:?}", self.key))),
            }
            let answer = self.server.txn(&look(vec![key(&self.key)]), PATIENCE)?;
            if values(&answer, 0) == [next.as_str()] {
                self.written = answer.pages[0].pairs[0].written;
                break;
            }
        }
        self.value += 1;
        self.longest = self.longest.max(begun.elapsed());
        Ok(())
    }
}

pub(crate) fn dead_addresses(case: &Case) -> Outcome {
    let (cluster, _server) = single(case)?;
    // One port where nobody listens, and one where nobody answers.
    let unused = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let silent = TcpListener::bind("127.0.0.1:0")?;
    let mut endpoints = vec![
        format!("http://{unused}"),
        format!("http://{}", silent.local_addr()?),
    ];
    endpoints.extend(cluster.endpoints());
    let begun = Instant::now();
    // Each has an order of its own.
    for _ in 0..6 {
        let server = connect_to(endpoints.clone())?;
        for _ in 0..3 {
            server.txn(&change(vec![put("a", "1")]), Duration::from_secs(3))?;
        }
    }
    note(format!(
        "6 connections with two dead addresses: {:?}",
        begun.elapsed()
    ));
    let patience = Duration::from_millis(500);
    let nobody = EtcdServer::connect(&EtcdOptions {
        endpoints: endpoints[..2].to_vec(),
        connect_patience: patience,
        ..EtcdOptions::default()
    });
    ensure!(
        matches!(nobody, Err(shale_index::Error::Unavailable(_))),
        "{nobody:?}"
    );
    Ok(())
}

pub(crate) fn frozen_member(case: &Case) -> Outcome {
    let cluster = EtcdCluster::start(&case.work().join("cluster"), 3)?;
    let server = connect(&cluster)?;
    let leader = cluster.leader()?;
    for frozen in (0..3).filter(|i| *i != leader) {
        cluster.freeze(frozen)?;
        let patience = Duration::from_secs(6);
        for _ in 0..3 {
            let begun = Instant::now();
            // A read finds another member; a write may be on its way to the frozen one.
            server.txn(&look(vec![key("a")]), patience)?;
            ensure!(begun.elapsed() < patience / 2, "{:?}", begun.elapsed());
            let begun = Instant::now();
            match server.txn(&change(vec![put("a", "1")]), patience) {
                Ok(_) | Err(ServerError::Unknown(_)) => {}
                Err(other) => return Err(Failure::new(format!("{other:?}"))),
            }
            ensure!(begun.elapsed() < patience / 2, "{:?}", begun.elapsed());
        }
        let answer = server.txn(&change(vec![put("a", "2")]), patience)?;
        ensure!(answer.held, "a write beside a frozen member");
        cluster.thaw(frozen)?;
    }
    Ok(())
}

pub(crate) fn dead_leader(case: &Case) -> Outcome {
    let mut cluster = EtcdCluster::start(&case.work().join("cluster"), 3)?;
    let server = std::sync::Arc::new(connect(&cluster)?);
    let counting = |name: &str, seconds| -> JoinHandle<Outcome<(u64, u64, Duration)>> {
        let (server, name) = (std::sync::Arc::clone(&server), name.to_owned());
        std::thread::spawn(move || {
            let begun = Instant::now();
            let mut count = Count::new(&server, name);
            while begun.elapsed() < Duration::from_secs(seconds) {
                count.step()?;
            }
            Ok((count.value, count.unknown, count.longest))
        })
    };
    let threads: Vec<_> = (0..4).map(|n| counting(&format!("k{n}"), 8)).collect();
    std::thread::sleep(Duration::from_secs(1));
    let leader = cluster.leader()?;
    cluster.kill(leader)?;
    std::thread::sleep(Duration::from_secs(3));
    cluster.restart(leader)?;
    // An ordered change of leaders on top.
    cluster.move_leader(leader)?;
    for (n, thread) in threads.into_iter().enumerate() {
        let joined = thread
            .join()
            .map_err(|_| Failure::new("a writer panicked"))?;
        let (steps, unknown, longest) = joined?;
        let expected = steps.to_string();
        ensure_eq!(get(&*server, &format!("k{n}"))?, Some(expected));
        note(format!(
            "{steps} steps, {unknown} without an answer, the longest took {longest:?}"
        ));
    }
    Ok(())
}

pub(crate) fn no_majority(case: &Case) -> Outcome {
    let mut cluster = EtcdCluster::start(&case.work().join("cluster"), 3)?;
    let server = connect(&cluster)?;
    server.txn(&change(vec![put("a", "1")]), PATIENCE)?;
    let leader = cluster.leader()?;
    for i in (0..3).filter(|i| *i != leader) {
        cluster.kill(i)?;
    }
    let patience = Duration::from_secs(2);
    let begun = Instant::now();
    // The leader may not know yet, and take the write.
    let write = server.txn(&change(vec![put("a", "2")]), patience);
    ensure!(
        matches!(
            write,
            Err(ServerError::Unknown(_) | ServerError::Unavailable(_))
        ),
        "{write:?}"
    );
    let read = server.txn(&look(vec![key("a")]), patience);
    ensure!(matches!(read, Err(ServerError::Unavailable(_))), "{read:?}");
    ensure!(begun.elapsed() < 3 * patience, "{:?}", begun.elapsed());
    for i in (0..3).filter(|i| *i != leader) {
        cluster.start_member(i)?;
    }
    cluster.wait_healthy()?;
    let value = get(&server, "a")?.doing("a key that was acknowledged")?;
    ensure!(value == "1" || value == "2", "{value}");
    Ok(())
}

pub(crate) fn lost_answer(case: &Case) -> Outcome {
    let (cluster, direct) = single(case)?;
    let proxy = Proxy::start(cluster.address(0), seed()?)?;
    let server = connect_to(vec![proxy.endpoint()])?;
    server.txn(&change(vec![put("a", "1")]), PATIENCE)?;
    proxy.lose_next(1);
    match server.txn(&change(vec![put("a", "2")]), PATIENCE) {
        Err(ServerError::Unknown(_)) => {}
        other => return Err(Failure::new(format!("a lost answer: {other:?}"))),
    }
    ensure_eq!(get(&direct, "a")?.as_deref(), Some("2"));
    // What can be repeated is.
    proxy.lose_next(1);
    ensure_eq!(get(&server, "a")?.as_deref(), Some("2"));
    proxy.lose_next(1);
    let lease = server.grant(Duration::from_secs(60), PATIENCE)?;
    proxy.lose_next(1);
    server.keep_alive(lease, PATIENCE)?;
    proxy.lose_next(1);
    server.revoke(lease, PATIENCE)?;
    ensure_eq!(
        direct.keep_alive(lease, PATIENCE),
        Err(ServerError::LeaseGone)
    );
    ensure_eq!(proxy.lost(), 5);
    // A request that never left is not in doubt, and a slow answer is one.
    proxy.cut();
    let patience = Duration::from_millis(500);
    let mut last = server.txn(&change(vec![put("a", "3")]), patience);
    for _ in 0..3 {
        last = server.txn(&change(vec![put("a", "3")]), patience);
    }
    ensure!(matches!(last, Err(ServerError::Unavailable(_))), "{last:?}");
    proxy.join();
    ensure_eq!(get(&server, "a")?.as_deref(), Some("2"));
    proxy.delay(Duration::from_millis(800));
    let slow = server.txn(&change(vec![put("a", "4")]), patience);
    ensure!(matches!(slow, Err(ServerError::Unknown(_))), "{slow:?}");
    proxy.delay(Duration::ZERO);
    ensure_eq!(get(&server, "a")?.as_deref(), Some("4"));
    Ok(())
}

pub(crate) fn many_lost(case: &Case) -> Outcome {
    const THREADS: u64 = 16;
    const STEPS: u64 = 10_000 / THREADS;
    let (cluster, direct) = single(case)?;
    let proxy = Proxy::start(cluster.address(0), seed()?)?;
    let server = connect_to(vec![proxy.endpoint()])?;
    proxy.lose_one_in(20);
    let (unknown, longest) = std::thread::scope(|scope| {
        let server = &server;
        let count = move |n| {
            let mut count = Count::new(server, format!("k{n}"));
            for _ in 0..STEPS {
                count.step()?;
            }
            Ok((count.unknown, count.longest))
        };
        let threads: Vec<_> = (0..THREADS)
            .map(|n| scope.spawn(move || count(n)))
            .collect();
        let (mut unknown, mut longest) = (0, Duration::ZERO);
        for thread in threads {
            let joined: Outcome<_> = thread.join().map_err(|_| Failure::new("a panic"))?;
            let (of_thread, took) = joined?;
            unknown += of_thread;
            longest = longest.max(took);
        }
        Outcome::Ok((unknown, longest))
    })?;
    for n in 0..THREADS {
        ensure_eq!(get(&direct, &format!("k{n}"))?, Some(STEPS.to_string()));
    }
    ensure!(unknown > 0 && proxy.lost() > 0, "nothing was lost");
    note(format!(
        "{} answers lost, {unknown} transactions without one, the longest step took {longest:?}",
        proxy.lost()
    ));
    Ok(())
}

pub(crate) fn full(case: &Case) -> Outcome {
    // The smallest that leaves room for a few values.
    let quota = "--quota-backend-bytes=8000000";
    let cluster = EtcdCluster::start_with(&case.work().join("cluster"), 1, &[quota])?;
    let server = connect(&cluster)?;
    let value = "x".repeat(500_000);
    let mut unknown = 0;
    let refused = (0..100).find_map(|n| {
        match server.txn(&change(vec![put(&format!("k{n}"), &value)]), PATIENCE) {
            Ok(_) => None,
            Err(ServerError::Unknown(_)) => {
                unknown += 1;
                None
            }
            Err(error) => Some(error),
        }
    });
    ensure_eq!(refused, Some(ServerError::Full));
    ensure_eq!(
        unknown,
        1,
        "answers without a proof before the first with one"
    );
    let facts = server.facts(PATIENCE)?;
    let Some([Alarm::NoSpace { member }]) = facts.alarms.as_deref() else {
        return Err(Failure::new(format!("{facts:?}")));
    };
    // Deletions and reads go on, also in a transaction of the right kind.
    let answer = server.txn(&change(vec![delete("k0"), delete("k1")]), PATIENCE)?;
    ensure!(answer.held, "a deletion");
    ensure_eq!(get(&server, "k0")?, None);
    let mixed = change(vec![delete("k2"), put("k3", "1")]);
    ensure_eq!(server.txn(&mixed, PATIENCE), Err(ServerError::Full));
    ensure!(get(&server, "k2")?.is_some(), "refused as a whole");
    // As an administrator does it: compact, defragment, disarm.
    let ops = vec![RawOp::Delete {
        key: b"k".to_vec(),
        end: Some(b"l".to_vec()),
    }];
    let answer = server.txn(&change(ops), PATIENCE)?;
    cluster.compact(answer.revision)?;
    cluster.ask(0, "/v3/maintenance/defragment", &serde_json::json!({}))?;
    let disarm = serde_json::json!({ "action": 2, "alarm": 1, "memberID": member.to_string() });
    cluster.ask(0, "/v3/maintenance/alarm", &disarm)?;
    server.txn(&change(vec![put("a", "1")]), PATIENCE)?;
    ensure_eq!(server.facts(PATIENCE)?.alarms, Some(Vec::new()));
    Ok(())
}
