//! One fault at a time, and what the session makes of it.

mod exactly_once;
mod life;
mod volume;

use std::sync::Arc;
use std::time::Duration;

use super::memory::MemoryServer;
use super::server::{EventSink, LeaseId, RawAnswer, RawRange, RawTxn, Server, ServerError};
use super::{Options, Replicated};
use crate::kv::{Counter, Kv, Limits, Txn, Want};

pub(super) fn options() -> Options {
    Options {
        prefix: b"/v/".to_vec(),
        pause: Duration::from_micros(100),
        ..Options::default()
    }
}

pub(super) fn open<S: Server + Clone>(server: &S) -> Replicated<S> {
    Replicated::open(server.clone(), options()).unwrap()
}

pub(super) fn put(key: &[u8]) -> Txn {
    let mut txn = Txn::new();
    txn.put(key.to_vec(), b"v".to_vec());
    txn
}

pub(super) fn adding(key: &[u8], sum: i64) -> Txn {
    let mut txn = Txn::new();
    txn.add(key.to_vec(), Counter::of(sum));
    txn
}

pub(super) fn sum<S: Server>(kv: &Replicated<S>, key: &[u8]) -> i64 {
    let found = kv.get_many(&[Want::Counter(key.to_vec())]).unwrap().found;
    let pair = found[0].first();
    pair.map_or(0, |(_, value)| {
        Counter::decode(&value.value).unwrap().sums[0]
    })
}

/// How many raw keys a range has.
pub(super) fn raw_keys(server: &MemoryServer, start: &[u8], end: &[u8]) -> usize {
    let read = RawRange {
        key: start.to_vec(),
        end: Some(end.to_vec()),
        limit: 0,
        revision: 0,
    };
    let txn = RawTxn {
        reads: vec![read],
        ..RawTxn::default()
    };
    let answer = server.client().txn(&txn, Duration::ZERO).unwrap();
    answer.pages[0].pairs.len()
}

/// Calls a function after every request that has lost its answer.
#[derive(Clone)]
pub(super) struct Hooked {
    pub(super) server: MemoryServer,
    pub(super) hook: Arc<dyn Fn(&MemoryServer) + Send + Sync>,
}

impl std::fmt::Debug for Hooked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hooked")
    }
}

impl Server for Hooked {
    fn txn(&self, txn: &RawTxn, patience: Duration) -> Result<RawAnswer, ServerError> {
        let answer = self.server.txn(txn, patience);
        if matches!(answer, Err(ServerError::Unknown(_))) {
            (self.hook)(&self.server);
        }
        answer
    }

    fn grant(&self, ttl: Duration, patience: Duration) -> Result<LeaseId, ServerError> {
        self.server.grant(ttl, patience)
    }

    fn keep_alive(&self, lease: LeaseId, patience: Duration) -> Result<Duration, ServerError> {
        self.server.keep_alive(lease, patience)
    }

    fn revoke(&self, lease: LeaseId, patience: Duration) -> Result<(), ServerError> {
        self.server.revoke(lease, patience)
    }

    fn watch(
        &self,
        ranges: &[(Vec<u8>, Vec<u8>)],
        sink: EventSink,
    ) -> Result<Box<dyn std::any::Any + Send + Sync>, ServerError> {
        self.server.watch(ranges, sink)
    }

    fn limits(&self) -> Limits {
        self.server.limits()
    }

    fn may_repeat(&self) -> bool {
        self.server.may_repeat()
    }
}
