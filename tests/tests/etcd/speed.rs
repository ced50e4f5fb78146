//! How long transactions take, for the record.

use std::time::{Duration, Instant};

use shale_index::engine::etcd::EtcdServer;
use shale_index::engine::replicated::server::{RawCompare, RawTxn, Server, Test};
use shale_tests::{Case, EtcdCluster, Failure, Outcome, note};

use crate::{PATIENCE, connect, put};

const LENGTH: Duration = Duration::from_secs(2);

pub(crate) fn measure(case: &Case) -> Outcome {
    for members in [1, 3] {
        let directory = case.work().join(members.to_string());
        let cluster = EtcdCluster::start(&directory, members)?;
        let server = connect(&cluster)?;
        for threads in [1, 16] {
            let mut took = run(&server, threads)?;
            took.sort_unstable();
            let at = |part: usize| took[(took.len() - 1) * part / 100];
            note(format!(
                "{members} members, {threads} threads: {} creates/s, p50 {:?}, p99 {:?}",
                took.len() as u64 / LENGTH.as_secs(),
                at(50),
                at(99),
            ));
        }
    }
    Ok(())
}

/// Creates of a name and an inode, as a file system makes them, and how long each took.
fn run(server: &EtcdServer, threads: usize) -> Outcome<Vec<Duration>> {
    std::thread::scope(|scope| {
        let work = move |thread: usize| {
            let begun = Instant::now();
            let mut took = Vec::new();
            while begun.elapsed() < LENGTH {
                let n = took.len();
                let absent = |key: String| RawCompare {
                    key: key.into(),
                    end: None,
                    test: Test::Absent,
                };
                let (name, inode) = (
                    format!("d{threads}/{thread}/{n}"),
                    format!("i{threads}/{thread}/{n}"),
                );
                let txn = RawTxn {
                    compares: vec![absent(name.clone()), absent(inode.clone())],
                    ops: vec![put(&name, "12345678"), put(&inode, &"x".repeat(96))],
                    ..RawTxn::default()
                };
                let sent = Instant::now();
                server.txn(&txn, PATIENCE)?;
                took.push(sent.elapsed());
            }
            Ok(took)
        };
        let running: Vec<_> = (0..threads).map(|n| scope.spawn(move || work(n))).collect();
        let mut all = Vec::new();
        for thread in running {
            let took: Outcome<Vec<Duration>> =
                thread.join().map_err(|_| Failure::new("a panic"))?;
            all.extend(took?);
        }
        Ok(all)
    })
}
