//! Engines that are wrong on purpose: the cases must notice.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use shale_index::engine::replicated::Sabotage;
use shale_index::kv::{
    Found, Hint, KeyRange, Lease, Limits, Outcome, Snapshot, Txn, Version, Visitor, Want,
    WatchGuard, Watcher,
};
use shale_index::testing::conformance::{Fixture, case};
use shale_index::{Error, Kv};

use crate::fixtures::Servers;
use crate::passes;

fn is_noticed(fixture: &dyn Fixture, name: &str) {
    assert!(!passes(&case(name), fixture), "{name} notices nothing");
}

#[test]
fn transactions_that_do_not_compare_their_lane_are_noticed() {
    for name in [
        "transactions_happen_once_when_answers_are_lost",
        "an_ended_session_commits_nothing",
    ] {
        is_noticed(&Servers::broken(Sabotage::NoFencing), name);
    }
}

#[test]
fn counters_that_are_read_and_written_back_are_noticed() {
    for name in [
        "additions_of_many_sessions_add_up",
        "additions_and_drops_are_serial",
    ] {
        is_noticed(&Servers::broken(Sabotage::BlindCounters), name);
    }
}

#[test]
fn a_watch_that_is_taken_for_the_truth_is_noticed() {
    let fixture = Cached(Servers::new());
    is_noticed(&fixture, "a_late_watch_makes_no_read_stale");
}

/// Sessions that believe their watch.
struct Cached(Servers);

impl Fixture for Cached {
    fn session(&self) -> Arc<dyn Kv> {
        Arc::new(Believer::new(self.0.session()))
    }

    fn shared(&self) -> bool {
        true
    }

    fn lag_watches(&self, lag: bool) -> bool {
        self.0.lag_watches(lag)
    }
}

type Cache = Arc<Mutex<HashMap<Vec<u8>, Found>>>;

/// An engine that answers from memory until its watch says that something has changed.
struct Believer {
    kv: Arc<dyn Kv>,
    cache: Cache,
    _watch: WatchGuard,
}

impl std::fmt::Debug for Believer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Believer")
    }
}

impl Believer {
    fn new(kv: Arc<dyn Kv>) -> Self {
        let cache = Cache::default();
        let forgetting = Arc::clone(&cache);
        let watcher: Watcher = Box::new(move |hint| {
            let mut cache = forgetting.lock().unwrap();
            match hint {
                Hint::Changed { key, .. } => drop(cache.remove(key)),
                Hint::Gap => cache.clear(),
            }
        });
        let watch = kv.watch(vec![(vec![], vec![0xff])], watcher).unwrap();
        Self {
            kv,
            cache,
            _watch: watch,
        }
    }
}

impl Kv for Believer {
    fn get_many(&self, wants: &[Want]) -> Result<Snapshot, Error> {
        let [Want::Key(key)] = wants else {
            return self.kv.get_many(wants);
        };
        if let Some(found) = self.cache.lock().unwrap().get(key) {
            return Ok(Snapshot {
                version: self.kv.version(),
                found: vec![found.clone()],
            });
        }
        let snapshot = self.kv.get_many(wants)?;
        let found = snapshot.found[0].clone();
        self.cache.lock().unwrap().insert(key.clone(), found);
        Ok(snapshot)
    }

    fn commit(&self, txn: &Txn) -> Result<Outcome, Error> {
        self.kv.commit(txn)
    }

    fn sync(&self, version: Version) -> Result<(), Error> {
        self.kv.sync(version)
    }

    fn version(&self) -> Version {
        self.kv.version()
    }

    fn syncs(&self) -> u64 {
        self.kv.syncs()
    }

    fn lease(&self) -> Lease {
        self.kv.lease()
    }

    fn limits(&self) -> Limits {
        self.kv.limits()
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn close(&self) -> Result<(), Error> {
        self.kv.close()
    }

    fn dump(&self, visit: &mut Visitor<'_>) -> Result<(), Error> {
        self.kv.dump(visit)
    }

    fn scan(
        &self,
        range: &KeyRange,
        visit: &mut Visitor<'_>,
        restart: &mut dyn FnMut(),
    ) -> Result<Version, Error> {
        self.kv.scan(range, visit, restart)
    }

    fn watch(&self, ranges: Vec<KeyRange>, watcher: Watcher) -> Result<WatchGuard, Error> {
        self.kv.watch(ranges, watcher)
    }
}
