//! Background work: checkpoints, snapshots, trimming, and rebuilding the base.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use shale_backing::failpoint::{Stage, reach};
use shale_backing::release_memory;

use super::base::memory::MemoryBase;
use super::base::sled::{SledBase, dir_of};
use super::base::{Base, BaseFault};
use super::checkpoint::Checkpoint;
use super::commit::{Shared, TOP};
use super::memtable::{Memtable, Slot};
use super::paths;
use super::rebuild::{self, RebuiltBase};
use super::snapshot::{self, SnapshotSummary, SnapshotWriter};
use crate::Error;
use crate::kv::Version;

/// After a failure, how long before the next attempt in the background.
const PATIENCE: Duration = Duration::from_secs(5);
/// The share of the newest changes that may stay in memory when idle.
const KEPT_SHARE: usize = 8;
/// Keys of one step of a walk over the index.
const STEP: usize = 256;
/// A base that has failed this often is replaced by one in memory.
const MAX_REBUILDS: u32 = 3;

/// Sees the keys of a walk.
type Visit<'a> = dyn FnMut(&[u8], &Slot) -> Result<(), Error> + 'a;

/// State of the thread that maintains the index.
#[derive(Debug)]
pub(crate) struct Maintenance {
    /// How far the base is complete.
    pub(crate) checkpoint: Checkpoint,
    /// The newest snapshot.
    pub(crate) snapshot: Option<SnapshotSummary>,
    /// The frozen table: up to which commit, and the leased keys then.
    pub(crate) frozen: Option<(Version, BTreeSet<Vec<u8>>)>,
    /// A snapshot is wanted regardless of the journal's length.
    pub(crate) overdue: bool,
    pub(crate) rebuilds: u32,
    pub(crate) not_before: Option<Instant>,
}

/// The result of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Applied {
    Done,
    /// Not now: the device is full.
    Postponed,
}

impl Shared {
    /// One round of the background thread.
    pub(crate) fn maintain(&self) {
        let mut maintenance = self.maintenance.lock();
        if maintenance
            .not_before
            .is_some_and(|time| Instant::now() < time)
        {
            return;
        }
        maintenance.not_before = None;
        let resting = self.resting.swap(false, Ordering::Relaxed);
        let share = if resting { KEPT_SHARE } else { 1 };
        if let Err(error) = self.maintain_now(&mut maintenance, self.limits.memtable / share) {
            tracing::warn!(
                %error,
                "the index could not write a checkpoint and keeps its changes in the journal, \
                 retrying later: check the free space and the health of the device of the store"
            );
            maintenance.not_before = Some(Instant::now() + PATIENCE);
        }
        if resting {
            release_memory();
        }
    }

    /// Changes of up to `memtable` bytes may stay in memory.
    fn maintain_now(&self, maintenance: &mut Maintenance, memtable: usize) -> Result<(), Error> {
        let (pending, last) = {
            let committer = self.committer.lock();
            (committer.writer.pending_bytes(), committer.writer.last())
        };
        if pending > self.limits.unsynced {
            self.sync(last)?;
        }
        if self.tables.read().active.bytes() > memtable || maintenance.frozen.is_some() {
            self.apply(maintenance)?;
        }
        let due = self.snapshot_at.load(Ordering::Relaxed);
        if maintenance.overdue || self.journaled.load(Ordering::Relaxed) > due {
            self.snapshot(maintenance)?;
        }
        Ok(())
    }

    /// Makes a committer that is far ahead of the background thread do its work, so that memory
    /// stays bounded. A failure is logged and does not fail the commit.
    pub(crate) fn hold_back(&self) {
        if self.tables.read().active.bytes() > 2 * self.limits.memtable {
            self.maintain();
        }
        let (pending, last) = {
            let committer = self.committer.lock();
            (committer.writer.pending_bytes(), committer.writer.last())
        };
        if pending > 2 * self.limits.unsynced {
            let _ = self.sync(last);
        }
    }

    /// Merges everything committed so far into the base.
    pub(crate) fn checkpoint(&self) -> Result<(), Error> {
        let mut maintenance = self.maintenance.lock();
        // First the frozen changes, then the rest.
        if maintenance.frozen.is_some() {
            self.apply(&mut maintenance)?;
        }
        self.apply(&mut maintenance).map(|_| ())
    }

    /// Writes a snapshot.
    pub(crate) fn snapshot_now(&self) -> Result<(), Error> {
        let mut maintenance = self.maintenance.lock();
        self.snapshot(&mut maintenance)
    }

    /// Freezes the newest changes, unless some are frozen already.
    fn freeze(&self, maintenance: &mut Maintenance) -> Option<Arc<Memtable>> {
        let committer = self.committer.lock();
        let mut tables = self.tables.write();
        if tables.frozen.is_none() && !tables.active.is_empty() {
            tables.frozen = Some(Arc::new(std::mem::take(&mut tables.active)));
            maintenance.frozen = Some((tables.version, committer.leased.clone()));
        }
        tables.frozen.clone()
    }

    fn apply(&self, maintenance: &mut Maintenance) -> Result<Applied, Error> {
        let Some(frozen) = self.freeze(maintenance) else {
            return Ok(Applied::Done);
        };
        let Some((version, leased)) = maintenance.frozen.clone() else {
            return Ok(Applied::Done);
        };
        if self
            .backing
            .space()
            .is_ok_and(|space| space.available < self.limits.free)
        {
            // sled does not survive a full disk. The journal has everything, and only few more
            // commits are possible.
            tracing::warn!(
                "the device of the store is nearly full: free some space; the index cannot \
                 compact its journal"
            );
            maintenance.not_before = Some(Instant::now() + PATIENCE);
            return Ok(Applied::Postponed);
        }
        // The base must never be ahead of the durable journal.
        self.sync(version)?;
        loop {
            let base = self.tables.read().base.clone();
            let done = base.merge(frozen.iter()).and_then(|()| match &*base {
                Base::Sled(disk) => disk.complete(version),
                Base::Memory(_) => Ok(()),
            });
            match done {
                Ok(()) => break,
                Err(fault) => self.rebuild(maintenance, &fault)?,
            }
        }
        reach(Stage::CheckpointMerged);
        let checkpoint = Checkpoint {
            version,
            leased,
            ..maintenance.checkpoint.clone()
        };
        if matches!(&*self.tables.read().base, Base::Sled(_)) {
            checkpoint.store(&*self.backing)?;
        }
        reach(Stage::CheckpointStored);
        maintenance.checkpoint = checkpoint;
        maintenance.frozen = None;
        // No reader caches them again while they are frozen.
        for (key, _) in frozen.iter() {
            self.tables.read().cache.forget(key);
        }
        self.tables.write().frozen = None;
        self.renew(maintenance)?;
        self.trim(maintenance);
        Ok(Applied::Done)
    }

    /// Walks over all live keys without stopping commits. Each step is consistent.
    pub(crate) fn walk(&self, visit: &mut Visit<'_>) -> Result<(), Error> {
        walk(visit, |from| {
            self.read(|tables| tables.range(from, &TOP, STEP))
        })
    }

    fn snapshot(&self, maintenance: &mut Maintenance) -> Result<(), Error> {
        let version = self.tables.read().version;
        let before = self.journaled.load(Ordering::Relaxed);
        let mut writer = SnapshotWriter::create(&*self.backing, Path::new(paths::DIR), version)?;
        let walked = walk(&mut |key, slot| writer.push(key, slot), |from| {
            loop {
                self.check()?;
                let step = self.tables.read().range(from, &TOP, STEP);
                match step {
                    Ok(step) => return Ok(step),
                    Err(fault) => self.rebuild(maintenance, &fault)?,
                }
            }
        });
        let written = walked.and_then(|()| {
            let finished = self.tables.read().version;
            self.sync(finished)?;
            reach(Stage::SnapshotWritten);
            writer.finish(&*self.backing, finished)
        });
        let summary = match written {
            Ok(summary) => summary,
            Err(error) => {
                let _ = paths::remove(&*self.backing, &paths::path("snapshot-new"));
                return Err(error);
            }
        };
        reach(Stage::SnapshotNamed);
        self.journaled.fetch_sub(before, Ordering::Relaxed);
        self.snapshot_at
            .store(self.limits.snapshot.max(2 * summary.raw), Ordering::Relaxed);
        maintenance.snapshot = Some(summary);
        maintenance.overdue = false;
        self.trim(maintenance);
        Ok(())
    }

    /// Removes the segments and snapshots that neither the base nor the newest snapshot needs.
    /// Retries later what cannot be removed now.
    fn trim(&self, maintenance: &Maintenance) {
        let Some(snapshot) = maintenance.snapshot else {
            return;
        };
        let needed = snapshot.version.min(maintenance.checkpoint.version);
        let segments = self.committer.lock().writer.trim(needed);
        // Oldest first, so that a crash leaves no hole.
        let removed = segments
            .iter()
            .try_for_each(|path| paths::remove(&*self.backing, path));
        let removed = removed.and_then(|()| {
            if maintenance.checkpoint.version < snapshot.version {
                return Ok(());
            }
            for version in paths::list_numbered(&*self.backing, snapshot::PREFIX)? {
                if version < snapshot.version {
                    paths::remove(&*self.backing, &snapshot::path_of(version))?;
                }
            }
            Ok(())
        });
        if let Err(error) = removed {
            tracing::warn!(
                %error,
                "an old file of the index could not be removed; it only takes space, and a later \
                 mount removes it"
            );
        }
    }

    /// Rebuilds the base for a reader that found it failing, unless another thread already has.
    pub(crate) fn heal(&self, generation: u64, fault: &BaseFault) -> Result<(), Error> {
        let mut maintenance = self.maintenance.lock();
        if self.tables.read().generation != generation {
            return Ok(());
        }
        self.check()?;
        self.rebuild(&mut maintenance, fault)
    }

    /// Rebuilds the base from snapshot and journal. Readers wait and see no error.
    fn rebuild(&self, maintenance: &mut Maintenance, fault: &BaseFault) -> Result<(), Error> {
        // No segment comes or goes meanwhile.
        let committer = self.committer.lock();
        let base = self.remake(maintenance, fault)?;
        drop(committer);
        self.tables.write().show(base);
        Ok(())
    }

    /// Replaces a base that failed; the caller holds the committer.
    fn remake(&self, maintenance: &mut Maintenance, fault: &BaseFault) -> Result<Base, Error> {
        tracing::warn!(
            reason = %fault.0,
            "sled's copy of the index is damaged, rebuilding it from snapshot and journal. No data \
             is lost. If this happens often, check the memory and the device"
        );
        maintenance.rebuilds += 1;
        let target = maintenance.checkpoint.version;
        let disk = maintenance.rebuilds <= MAX_REBUILDS;
        let built = rebuild::build(&*self.backing, &self.limits, Some(target), target, disk);
        let made = built.and_then(|RebuiltBase { base, .. }| {
            let mut checkpoint = maintenance.checkpoint.clone();
            // A base in memory has no instance; the next open creates one.
            checkpoint.base = 0;
            if let Base::Sled(disk) = &base {
                checkpoint.base = disk.id();
                checkpoint.store(&*self.backing)?;
            }
            Ok((base, checkpoint))
        });
        match made {
            Ok((base, checkpoint)) => {
                let old = std::mem::replace(&mut maintenance.checkpoint, checkpoint);
                let _ = self.backing.remove_dir_all(&dir_of(old.base));
                Ok(base)
            }
            Err(error) => {
                self.poison(&format!("its base failed and cannot be rebuilt: {error}"));
                Err(error)
            }
        }
    }

    /// Reopens sled once it has written much. Only then does it record where its pages are;
    /// otherwise it would read everything written since after a crash. Readers wait a moment.
    fn renew(&self, maintenance: &mut Maintenance) -> Result<(), Error> {
        let due = match &*self.tables.read().base {
            Base::Sled(disk) => disk.written() > self.limits.renew,
            Base::Memory(_) => false,
        };
        if !due {
            return Ok(());
        }
        let _committer = self.committer.lock();
        let mut tables = self.tables.write();
        // The old instance must be gone first. No reader sees the empty one.
        tables.show(Base::Memory(MemoryBase::default()));
        let Checkpoint { version, base, .. } = maintenance.checkpoint;
        let opened = SledBase::open(self.backing.anchor(), base, version, self.limits.sled);
        let base = match opened {
            Ok(disk) => Base::Sled(disk),
            Err(fault) => self.remake(maintenance, &fault)?,
        };
        tables.show(base);
        Ok(())
    }

    /// Writes a snapshot at a clean close when that is cheap and shortens the journal.
    pub(crate) fn snapshot_if_worth_it(&self) -> Result<(), Error> {
        let mut maintenance = self.maintenance.lock();
        let journaled = self.journaled.load(Ordering::Relaxed);
        let small = maintenance.snapshot.map_or(0, |snapshot| snapshot.raw) < 2 * journaled;
        if journaled > self.limits.close && journaled < self.limits.snapshot && small {
            self.snapshot(&mut maintenance)?;
        }
        Ok(())
    }
}

/// Visits the results of `read` for one starting key after the other.
fn walk(
    visit: &mut Visit<'_>,
    mut read: impl FnMut(&[u8]) -> Result<Vec<(Vec<u8>, Slot)>, Error>,
) -> Result<(), Error> {
    let mut from = Vec::new();
    loop {
        let step = read(&from)?;
        for (key, slot) in &step {
            visit(key, slot)?;
        }
        match step.into_iter().nth(STEP - 1) {
            Some((key, _)) => {
                from = key;
                from.push(0);
            }
            None => return Ok(()),
        }
    }
}
