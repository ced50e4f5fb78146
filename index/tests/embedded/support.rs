//! A reference with its whole history, and a disk that fails on command.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

pub(crate) use shale_backing::faults::{FaultDisk, Left, Step, Tear};
use shale_backing::{Backing, PosixBacking};
use shale_index::engine::{Embedded, Options, Recovery, ReferenceKv, Tuning};
use shale_index::kv::{Lease, Op, Outcome, Txn, Version, Versioned};
use shale_index::{Error, Kv};

pub(crate) type State = BTreeMap<Vec<u8>, Versioned>;

pub(crate) const TINY: Options = Options {
    memory: 1 << 20,
    read_only: false,
    tuning: Tuning::Tiny,
};
pub(crate) const QUIET: Options = Options {
    tuning: Tuning::TinyQuiet,
    ..TINY
};

pub(crate) fn posix(path: &Path) -> Arc<dyn Backing> {
    Arc::new(PosixBacking::new(path))
}

pub(crate) fn open(path: &Path, options: Options) -> (Embedded, Recovery) {
    Embedded::open(posix(path), options).unwrap()
}

/// All live keys of an engine.
pub(crate) fn state_of(kv: &dyn Kv) -> State {
    kv.range(&[], &[0xff; 64], usize::MAX)
        .unwrap()
        .into_iter()
        .collect()
}

pub(crate) fn put(kv: &dyn Kv, key: &str, value: &[u8]) -> Version {
    let mut txn = Txn::new();
    txn.put(key.into(), value.to_vec());
    committed(kv.commit(&txn).unwrap())
}

pub(crate) fn committed(outcome: Outcome) -> Version {
    match outcome {
        Outcome::Committed(version) => version,
        other => panic!("{other:?}"),
    }
}

/// The same transaction under another lease.
pub(crate) fn under(txn: &Txn, new: Lease) -> Txn {
    let mut txn = txn.clone();
    for op in &mut txn.ops {
        if let Op::Put {
            lease: Some(lease), ..
        } = op
        {
            *lease = new;
        }
    }
    txn
}

/// The reference, with the state after every commit.
pub(crate) struct Model {
    pub(crate) kv: ReferenceKv,
    pub(crate) history: BTreeMap<Version, State>,
}

impl Model {
    pub(crate) fn new() -> Self {
        Self {
            kv: ReferenceKv::new(),
            history: BTreeMap::from([(0, State::new())]),
        }
    }

    pub(crate) fn commit(&mut self, txn: &Txn) -> Outcome {
        let outcome = self.kv.commit(&under(txn, self.kv.lease())).unwrap();
        self.note();
        outcome
    }

    pub(crate) fn reopen(&mut self) {
        self.kv = self.kv.reopen();
        self.note();
    }

    fn note(&mut self) {
        self.history.insert(self.kv.version(), state_of(&self.kv));
    }
}

pub(crate) fn copy_dir(from: &Path, to: &Path) {
    shale_backing::faults::copy_dir(from, to).unwrap();
}

/// A disk with an empty store.
pub(crate) fn disk(root: &Path) -> Arc<FaultDisk> {
    std::fs::create_dir_all(root.join("index")).unwrap();
    FaultDisk::new(root).unwrap()
}

/// The remains of a loss of power, from nothing to everything.
pub(crate) const LEFT: [Left; 4] = [
    Left::Nothing,
    Left::Some(1),
    Left::Some(2),
    Left::Everything,
];

pub(crate) fn errno(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}

/// The number that the operating system gave for an error.
pub(crate) fn os_error(error: &Error) -> Option<i32> {
    match error {
        Error::Io { source, .. } => source.raw_os_error(),
        _ => None,
    }
}
