//! The embedded engine: a journal that is the truth, and a base of it in sled.
//!
//! ```text
//! commit -> journal record -> memtable -> (frozen) -> blocks in sled -> checkpoint
//!                 \-> sync: fdatasync, shared by all callers that wait
//! read   <- memtable, else frozen, else cache, else sled
//! snapshot: all live keys in one file; then older segments go
//! ```

pub(crate) mod base;
mod cache;
pub(crate) mod checkpoint;
mod commit;
pub(crate) mod group_sync;
mod import;
pub(crate) mod journal;
mod maintain;
mod memtable;
mod open;
mod options;
pub(crate) mod paths;
mod rebuild;
mod resolve;
mod scan;
pub(crate) mod snapshot;
mod sync;
mod tables;

pub use options::{Options, Recent, Recovery, Tuning};

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use shale_backing::Backing;

use crate::Error;
use crate::kv::{
    Follower, KeyRange, Kv, Lease, Limits, Outcome, Snapshot, Txn, Version, Versioned, Visitor,
    Want, WatchGuard, Watcher,
};
use base::Base;
use base::memory::MemoryBase;
use commit::Shared;

/// The embedded engine.
#[derive(Debug)]
pub struct Embedded {
    shared: Arc<Shared>,
    worker: Mutex<Option<JoinHandle<()>>>,
}

impl Embedded {
    /// Opens the index of a store, creating it if there is none. No other process may have it open.
    ///
    /// # Errors
    /// When the files cannot be read or written, or acknowledged commits are missing.
    pub fn open(backing: Arc<dyn Backing>, options: Options) -> Result<(Self, Recovery), Error> {
        let (shared, recovery) = open::open(backing, &options)?;
        let shared = Arc::new(shared);
        let quiet = options.read_only || options.tuning == Tuning::TinyQuiet;
        let worker = if quiet {
            None
        } else {
            Some(start_worker(&shared)?)
        };
        // Replay may have filled the memtable, and damage may require a snapshot.
        shared.alarm.ring();
        Ok((
            Self {
                shared,
                worker: Mutex::new(worker),
            },
            recovery,
        ))
    }

    /// Merges everything committed so far into the base, so that the next open has nothing to
    /// replay. The background thread does this as needed.
    ///
    /// # Errors
    /// When the device cannot be written.
    pub fn checkpoint(&self) -> Result<(), Error> {
        self.shared.check()?;
        self.shared.checkpoint()
    }

    /// Writes a snapshot and drops the journal before it. The background thread does this as
    /// needed.
    ///
    /// # Errors
    /// When the device cannot be written.
    pub fn snapshot(&self) -> Result<(), Error> {
        self.shared.check()?;
        self.shared.snapshot_now()
    }

    /// sled panics when its device has died; that loses nothing, the journal is the truth.
    fn close_base(&self) {
        let nothing = Arc::new(Base::Memory(MemoryBase::default()));
        let base = std::mem::replace(&mut self.shared.tables.write().base, nothing);
        if catch_unwind(AssertUnwindSafe(|| drop(base))).is_err() {
            tracing::warn!(
                "sled's copy of the index could not be closed; the next mount rebuilds it"
            );
        }
    }

    fn stop_worker(&self) {
        self.shared.alarm.stop();
        if let Some(worker) = self.worker.lock().take() {
            // It catches its own panics.
            let _ = worker.join();
        }
    }
}

fn start_worker(shared: &Arc<Shared>) -> Result<JoinHandle<()>, Error> {
    let worker = Arc::clone(shared);
    let run = move || {
        let work = || {
            while worker.alarm.wait() {
                worker.maintain();
            }
        };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            let text = text.unwrap_or("without a word");
            tracing::error!(
                panic = text,
                "the background thread of the index died: unmount and mount the store again"
            );
            worker.poison(&format!("its background thread panicked: {text}"));
        }
    };
    std::thread::Builder::new()
        .name("shale-index".into())
        .spawn(run)
        .map_err(paths::io_error(
            "start the thread of",
            std::path::Path::new(paths::DIR),
        ))
}

impl Kv for Embedded {
    fn get_many(&self, wants: &[Want]) -> Result<Snapshot, Error> {
        self.shared.get_many(wants)
    }

    fn commit(&self, txn: &Txn) -> Result<Outcome, Error> {
        self.shared.commit(txn)
    }

    fn sync(&self, version: Version) -> Result<(), Error> {
        self.shared.check()?;
        self.shared.sync(version.min(self.version()))
    }

    fn version(&self) -> Version {
        self.shared.tables.read().version
    }

    fn syncs(&self) -> u64 {
        self.shared.syncer.rounds()
    }

    fn lease(&self) -> Lease {
        self.shared.lease
    }

    fn close(&self) -> Result<(), Error> {
        let shared = &self.shared;
        if shared.read_only {
            shared.poison("it was closed");
            return Ok(());
        }
        shared.check()?;
        let last = {
            let mut committer = shared.committer.lock();
            if committer.closed {
                return Err(Error::Closed("it is being closed".into()));
            }
            shared.end_lease(&mut committer)?;
            committer.closed = true;
            committer.writer.last()
        };
        if let Err(error) = shared.sync(last) {
            shared.committer.lock().closed = false;
            return Err(error);
        }
        self.stop_worker();
        // Everything is safe in the journal; the rest only makes the next open faster.
        let tidied = shared
            .checkpoint()
            .and_then(|()| shared.snapshot_if_worth_it());
        let tidied = tidied.and_then(|()| shared.committer.lock().writer.mark());
        if let Err(error) = tidied {
            tracing::warn!(
                %error,
                "the index was closed without a checkpoint; no data is lost, the next mount takes \
                 longer"
            );
        }
        shared.poison("it was closed");
        self.close_base();
        Ok(())
    }

    fn rest(&self) {
        self.shared.tables.read().cache.age();
        self.shared.resting.store(true, Ordering::Relaxed);
        self.shared.alarm.ring();
    }

    fn dump(&self, visit: &mut Visitor<'_>) -> Result<(), Error> {
        self.shared.walk(&mut |key, slot| match slot.live() {
            Some(value) => visit(key, &value),
            None => Ok(()),
        })
    }

    fn limits(&self) -> Limits {
        Limits {
            // A commit is a little longer in the journal.
            bytes: self.shared.limits.journal.commit / 2,
            ..Limits::NONE
        }
    }

    fn is_shared(&self) -> bool {
        false
    }

    fn scan(
        &self,
        range: &KeyRange,
        visit: &mut Visitor<'_>,
        restart: &mut dyn FnMut(),
    ) -> Result<Version, Error> {
        self.shared.scan(range, visit, restart)
    }

    fn watch(&self, ranges: Vec<KeyRange>, watcher: Watcher) -> Result<WatchGuard, Error> {
        self.shared.check()?;
        Ok(self.shared.watches.add(ranges, watcher))
    }

    fn follow(&self, follower: Follower) -> Result<(), Error> {
        self.shared.committer.lock().follower = Some(follower);
        Ok(())
    }

    fn get(&self, key: &[u8]) -> Result<Option<Versioned>, Error> {
        self.shared
            .read(|tables| Ok(tables.get(key)?.and_then(|slot| slot.live())))
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.stop_worker();
        self.close_base();
    }
}

#[cfg(test)]
mod tests {
    use shale_backing::PosixBacking;

    use super::*;

    #[test]
    fn changes_do_not_wait_in_memory_for_more_of_them() {
        let dir = tempfile::tempdir().unwrap();
        let backing = Arc::new(PosixBacking::new(dir.path()));
        let options = Options {
            tuning: Tuning::TinyQuiet,
            ..Options::default()
        };
        let (kv, _) = Embedded::open(backing, options).unwrap();
        let mut txn = Txn::new();
        txn.put(b"key".to_vec(), vec![7; kv.shared.limits.memtable / 2]);
        kv.commit(&txn).unwrap();
        let waits = || !kv.shared.tables.read().active.is_empty();
        kv.shared.maintain();
        assert!(waits(), "written although more may come");
        kv.rest();
        kv.shared.maintain();
        assert!(!waits());
        assert!(kv.get(b"key").unwrap().is_some());
        kv.close().unwrap();
    }
}
