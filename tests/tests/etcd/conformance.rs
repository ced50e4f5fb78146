//! The promises of the contract, kept by the replicated engine over etcd.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;
use shale_index::engine::etcd::EtcdServer;
use shale_index::engine::replicated::server::Server;
use shale_index::engine::replicated::{Options, Replicated, import};
use shale_index::kv::{Import, Lease};
use shale_index::testing::conformance::{CASES, Fixture};
use shale_index::{Error, Kv};
use shale_tests::{Case, EtcdCluster, Outcome, Proxy, ensure, note, tally};

use crate::{PATIENCE, connect, connect_to, key, look};

/// Long enough for a machine that is busy with other tests, short enough to wait for its end.
const TTL: Duration = Duration::from_secs(4);

pub(crate) fn one_member(case: &Case) -> Outcome {
    conform(case, 1, 10_000)
}

pub(crate) fn three_members(case: &Case) -> Outcome {
    conform(case, 3, 1_000)
}

fn conform(case: &Case, members: usize, transactions: usize) -> Outcome {
    let cluster = EtcdCluster::start(&case.work().join("cluster"), members)?;
    let direct = connect(&cluster)?;
    let cluster = Mutex::new(cluster);
    let mut failed = Vec::new();
    for promise in CASES {
        let sessions = Sessions {
            cluster: &cluster,
            direct: &direct,
            options: Options {
                prefix: format!("/shale/{}/", promise.name).into_bytes(),
                ttl: TTL,
                ..Options::default()
            },
            transactions,
            proxies: Mutex::default(),
        };
        let begun = Instant::now();
        let run = || (promise.run)(&sessions);
        if catch_unwind(AssertUnwindSafe(run)).is_err() {
            failed.push(promise.name);
        }
        println!("{} {:?}", promise.name, begun.elapsed());
        if begun.elapsed() > Duration::from_secs(3) {
            note(format!("{} took {:?}", promise.name, begun.elapsed()));
        }
    }
    let passed = (CASES.len() - failed.len()) as u64;
    tally(
        &format!("promises, {members} members"),
        CASES.len() as u64,
        passed,
        0,
    );
    ensure!(failed.is_empty(), "{failed:#?}");
    Ok(())
}

/// Sessions of one volume, each behind proxies of its own.
struct Sessions<'a> {
    cluster: &'a Mutex<EtcdCluster>,
    direct: &'a EtcdServer,
    options: Options,
    transactions: usize,
    proxies: Mutex<HashMap<Lease, Vec<Proxy>>>,
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sessions<'_> {
    fn open(&self) -> Outcome<(EtcdServer, Vec<Proxy>)> {
        let addresses: Vec<_> = {
            let cluster = locked(self.cluster);
            (0..cluster.size()).map(|i| cluster.address(i)).collect()
        };
        let seed = locked(&self.proxies).len() as u64;
        let mut proxies = Vec::new();
        for address in addresses {
            proxies.push(Proxy::start(address, seed)?);
        }
        let server = connect_to(proxies.iter().map(Proxy::endpoint).collect())?;
        Ok((server, proxies))
    }

    fn each_proxy(&self, session: Lease, act: impl Fn(&Proxy)) {
        let proxies = locked(&self.proxies);
        proxies.get(&session).into_iter().flatten().for_each(act);
    }

    fn lease_is_gone(&self, session: Lease) -> bool {
        let body = json!({ "ID": session.0.to_string() });
        let cluster = locked(self.cluster);
        let answer = cluster.ask(0, "/v3/lease/timetolive", &body);
        answer.is_ok_and(|answer| answer["TTL"] == "-1")
    }
}

impl Fixture for Sessions<'_> {
    fn session(&self) -> Arc<dyn Kv> {
        let (server, proxies) = self.open().expect("a connection");
        let kv = Replicated::open(server, self.options.clone()).expect("a session");
        locked(&self.proxies).insert(kv.lease(), proxies);
        Arc::new(kv)
    }

    fn shared(&self) -> bool {
        true
    }

    fn transactions(&self) -> usize {
        self.transactions
    }

    fn freeze_past_lease(&self, session: Lease) -> bool {
        self.each_proxy(session, |proxy| proxy.hold(true));
        let begun = Instant::now();
        while !self.lease_is_gone(session) {
            assert!(
                begun.elapsed() < PATIENCE,
                "a lease of {TTL:?} does not end"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        true
    }

    fn thaw(&self, session: Lease) {
        self.each_proxy(session, |proxy| proxy.hold(false));
    }

    fn lose_answers(&self, session: Lease, per_mille: u32) -> bool {
        let one_in = 1000_u64.checked_div(per_mille.into()).unwrap_or(0);
        self.each_proxy(session, |proxy| proxy.lose_one_in(one_in));
        true
    }

    fn compact(&self) -> bool {
        let answer = self.direct.txn(&look(vec![key("a")]), PATIENCE);
        let revision = answer.expect("the newest revision").revision;
        // One that is forgotten already will do.
        let _ = locked(self.cluster).compact(revision);
        true
    }

    fn kill_leader(&self) -> bool {
        let mut cluster = locked(self.cluster);
        let leader = cluster.leader().expect("a leader");
        cluster.kill(leader).expect("it dies");
        cluster.restart(leader).expect("it starts again");
        true
    }

    fn import(&self, pairs: Vec<Import>) -> Option<Result<(), Error>> {
        let (server, proxies) = self.open().expect("a connection");
        let imported = import(server, self.options.clone(), pairs, 0);
        drop(proxies);
        Some(imported)
    }
}
