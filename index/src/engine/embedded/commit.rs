//! The state that the threads of the embedded engine share, and the path of a commit.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex, RwLock};
use shale_backing::Backing;
use shale_backing::failpoint::{Stage, reach};

use super::base::BaseFault;
use super::group_sync::GroupSync;
use super::journal::writer::JournalWriter;
use super::maintain::Maintenance;
use super::memtable::track_lease;
use super::options::{Limits, Options};
use super::paths;
use super::resolve::{Resolved, resolve};
use super::tables::Tables;
use crate::Error;
use crate::engine::watches::Watches;
use crate::kv::{self, Change, Commit, Follower, Lease, Op, Outcome, Snapshot, Txn, Version, Want};

/// The longest key.
pub(crate) const MAX_KEY: usize = 1024;
/// A key above every key.
pub(crate) const TOP: [u8; MAX_KEY + 1] = [u8::MAX; MAX_KEY + 1];

/// Full memtables that may wait while checkpoints fail.
const MAX_BEHIND: usize = 32;

/// State of the thread that commits.
pub(crate) struct Committer {
    pub(crate) writer: JournalWriter,
    /// Keys under the lease.
    pub(crate) leased: BTreeSet<Vec<u8>>,
    pub(crate) follower: Option<Follower>,
    pub(crate) closed: bool,
}

/// All shared state. Locks are taken in the order maintenance, committer, tables.
pub(crate) struct Shared {
    pub(crate) backing: Arc<dyn Backing>,
    pub(crate) read_only: bool,
    pub(crate) limits: Limits,
    pub(crate) lease: Lease,
    pub(crate) maintenance: Mutex<Maintenance>,
    pub(crate) committer: Mutex<Committer>,
    pub(crate) tables: RwLock<Tables>,
    pub(crate) syncer: GroupSync,
    pub(crate) alarm: Alarm,
    pub(crate) watches: Watches,
    /// The next round of the background thread is for giving memory back.
    pub(crate) resting: AtomicBool,
    /// Journal bytes since the last snapshot, and at which a new one is due.
    pub(crate) journaled: AtomicU64,
    pub(crate) snapshot_at: AtomicU64,
    dead: AtomicBool,
    cause: Mutex<String>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

/// Wakes the background thread.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    state: Mutex<(bool, bool)>,
    rung: Condvar,
}

impl Alarm {
    /// There is work to do.
    pub(crate) fn ring(&self) {
        self.state.lock().0 = true;
        self.rung.notify_all();
    }

    /// No more work.
    pub(crate) fn stop(&self) {
        self.state.lock().1 = true;
        self.rung.notify_all();
    }

    /// Waits for work; false when there will be none.
    pub(crate) fn wait(&self) -> bool {
        let mut state = self.state.lock();
        while *state == (false, false) {
            self.rung.wait(&mut state);
        }
        state.0 = false;
        !state.1
    }
}

/// Why a reader got no answer.
enum Trouble {
    Base(u64, BaseFault),
    Other(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl Shared {
    pub(crate) fn new(
        backing: Arc<dyn Backing>,
        options: &Options,
        maintenance: Maintenance,
        committer: Committer,
        tables: Tables,
    ) -> Self {
        let limits = options.limits();
        Self {
            backing,
            read_only: options.read_only,
            limits,
            lease: Lease(paths::random()),
            maintenance: Mutex::new(maintenance),
            committer: Mutex::new(committer),
            tables: RwLock::new(tables),
            syncer: GroupSync::default(),
            alarm: Alarm::default(),
            watches: Watches::default(),
            resting: AtomicBool::new(false),
            journaled: AtomicU64::new(0),
            snapshot_at: AtomicU64::new(limits.snapshot),
            dead: AtomicBool::new(false),
            cause: Mutex::new(String::new()),
        }
    }

    /// Refuses everything from now on.
    pub(crate) fn poison(&self, cause: &str) {
        let mut first = self.cause.lock();
        if first.is_empty() {
            first.push_str(cause);
        }
        self.dead.store(true, Ordering::Release);
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.dead.load(Ordering::Acquire) {
            Err(Error::Closed(self.cause.lock().clone()))
        } else {
            Ok(())
        }
    }

    /// Runs a reader over the tables; a base that fails is rebuilt and the reader repeated.
    pub(crate) fn read<T>(
        &self,
        reader: impl Fn(&Tables) -> Result<T, BaseFault>,
    ) -> Result<T, Error> {
        loop {
            let (generation, fault) = {
                let tables = self.tables.read();
                // Under the lock: a close takes the base away right after it has announced it.
                self.check()?;
                match reader(&tables) {
                    Ok(answer) => return Ok(answer),
                    Err(fault) => (tables.generation, fault),
                }
            };
            self.heal(generation, &fault)?;
        }
    }

    pub(crate) fn get_many(&self, wants: &[Want]) -> Result<Snapshot, Error> {
        let live = |(key, slot): (Vec<u8>, super::memtable::Slot)| Some((key, slot.live()?));
        self.read(|tables| {
            let answer = |want: &Want| match want {
                Want::Key(key) | Want::Counter(key) => Ok(tables
                    .get(key)?
                    .and_then(|slot| slot.live())
                    .map(|value| (key.clone(), value))
                    .into_iter()
                    .collect()),
                Want::Range { start, end, limit } => Ok(tables
                    .range(start, end, *limit)?
                    .into_iter()
                    .filter_map(live)
                    .collect()),
            };
            let found: Result<_, BaseFault> = wants.iter().map(answer).collect();
            Ok(Snapshot {
                version: tables.version,
                found: found?,
            })
        })
    }

    pub(crate) fn commit(&self, txn: &Txn) -> Result<Outcome, Error> {
        if self.read_only {
            return Err(Error::ReadOnly);
        }
        // The journal refuses what is too large, by its own measure.
        txn.check(&kv::Limits::NONE)?;
        for op in &txn.ops {
            match op {
                Op::Put {
                    lease: Some(lease), ..
                } if *lease != self.lease => {
                    return Err(Error::ForeignLease);
                }
                Op::Put { key, .. } | Op::Add { key, .. } if key.len() > MAX_KEY => {
                    return Err(Error::KeyTooLong {
                        len: key.len(),
                        limit: MAX_KEY,
                    });
                }
                _ => {}
            }
        }
        let outcome = loop {
            self.check()?;
            let mut committer = self.committer.lock();
            match self.try_commit(&mut committer, txn) {
                Ok(outcome) => break outcome,
                Err(Trouble::Other(error)) => return Err(error),
                Err(Trouble::Base(generation, fault)) => {
                    drop(committer);
                    self.heal(generation, &fault)?;
                }
            }
        };
        self.hold_back();
        Ok(outcome)
    }

    fn try_commit(&self, committer: &mut Committer, txn: &Txn) -> Result<Outcome, Trouble> {
        if committer.closed {
            return Err(Error::Closed("it was closed".into()).into());
        }
        let version = committer.writer.last() + 1;
        let resolved = {
            let tables = self.tables.read();
            if tables.active.bytes() > MAX_BEHIND * self.limits.memtable {
                return Err(Error::Stalled.into());
            }
            resolve(txn, &*tables, version).map_err(|f| Trouble::Base(tables.generation, f))?
        };
        match resolved {
            Resolved::Conflict => Ok(Outcome::Conflict),
            Resolved::NotACounter(key) => Err(Error::Corrupt {
                what: format!("counter {}", key.escape_ascii()),
                detail: "it does not decode".to_owned(),
            }
            .into()),
            Resolved::Changes { changes, .. } if changes.is_empty() => {
                Ok(Outcome::Committed(version - 1))
            }
            Resolved::Changes { changes, shrinks } => Ok(Outcome::Committed(
                self.commit_changes(committer, changes, shrinks)?,
            )),
        }
    }

    /// Writes a commit to the journal, then makes it visible.
    pub(crate) fn commit_changes(
        &self,
        committer: &mut Committer,
        changes: Vec<Change>,
        shrinks: bool,
    ) -> Result<Version, Error> {
        let commit = Commit {
            version: committer.writer.last() + 1,
            changes,
        };
        let mut body = Vec::new();
        commit.encode_body(&mut body);
        let written = committer.writer.append(body, shrinks)?;
        reach(Stage::JournalAppended);
        let bytes = {
            let mut tables = self.tables.write();
            for change in &commit.changes {
                tables.active.apply(commit.version, change);
            }
            tables.version = commit.version;
            tables.active.bytes()
        };
        for change in &commit.changes {
            track_lease(&mut committer.leased, change);
        }
        if let Some(follower) = &committer.follower {
            follower(&commit);
        }
        let keys = commit.changes.iter().map(|change| change.key.as_slice());
        self.watches.tell(keys, commit.version);
        let journaled = self.journaled.fetch_add(written, Ordering::Relaxed) + written;
        if bytes > self.limits.memtable
            || committer.writer.pending_bytes() > self.limits.unsynced
            || journaled > self.snapshot_at.load(Ordering::Relaxed)
        {
            self.alarm.ring();
        }
        Ok(commit.version)
    }

    /// Ends the lease and removes its keys. Returns their number.
    pub(crate) fn end_lease(&self, committer: &mut Committer) -> Result<usize, Error> {
        let leased = committer.leased.clone();
        if !leased.is_empty() {
            let gone = |key| Change {
                key,
                value: None,
                leased: false,
            };
            let changes = leased.iter().cloned().map(gone).collect();
            self.commit_changes(committer, changes, true)?;
        }
        Ok(leased.len())
    }
}
