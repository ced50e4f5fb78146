//! The committer: makes frames durable, then commits them to the index.
//!
//! One thread does this for all files, so that one sync serves all callers that wait for it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use shale_backing::failpoint::{Stage, reach};
use shale_index::DataCommit;
use shale_index::extent::{Extent, PackId, Place};
use shale_index::schema::Phase;

use super::Writer;
use super::control::{CommitControl, Reason};
use super::encode::{EncodeJob, EncodeQueue};
use crate::Error;
use crate::catalog::Catalog;
use crate::file::{File, FileTable, Flushed, LockedFile};
use crate::frame::FrameEncoder;
use crate::settle::SETTLE_MIN;
use crate::volume::Volume;

/// Age at which unwritten data is written even if its chunk is not full.
const MAX_AGE: Duration = Duration::from_secs(2);

/// Work for the whole store between cycles. Implemented by gc, which is above this room.
pub(crate) trait Upkeep: Send {
    /// Runs after a cycle that made everything durable.
    fn after_durable_cycle(&mut self) -> Result<(), Error>;

    /// Whether the store has just become idle: once after each burst.
    fn has_become_idle(&mut self) -> bool;

    /// Gives back memory and space of a burst of work.
    fn rest(&mut self);
}

/// The committer's thread.
pub(crate) struct Committer {
    volume: Arc<Volume>,
    files: Arc<FileTable>,
    queue: Arc<EncodeQueue>,
    control: Arc<CommitControl>,
    catalog: Option<Arc<Catalog>>,
    upkeep: Box<dyn Upkeep>,
    encoder: FrameEncoder,
}

/// The part of a file's data that a cycle takes.
struct Batch {
    file: Arc<File>,
    flushed: Vec<Flushed>,
    size: Option<u64>,
}

/// Packs whose sync failed, and why.
struct LostPacks {
    packs: Vec<PackId>,
    cause: Option<Arc<Error>>,
}

impl Committer {
    pub(crate) fn new(writer: &Writer, upkeep: Box<dyn Upkeep>) -> Self {
        Self {
            volume: Arc::clone(&writer.volume),
            files: Arc::clone(&writer.files),
            queue: Arc::clone(&writer.queue),
            control: Arc::clone(&writer.commits),
            catalog: writer.catalog.clone(),
            upkeep,
            encoder: FrameEncoder::new(),
        }
    }

    /// Runs cycles until told to stop.
    pub(crate) fn run(mut self) {
        while let Some(reason) = self.control.next() {
            let cycle = AssertUnwindSafe(|| self.cycle(reason));
            if catch_unwind(cycle).is_err() {
                self.files.poison("the committer panicked");
                self.control.end();
                return self.control.panicked();
            }
            self.control.end();
            if self.upkeep.has_become_idle() {
                self.encoder = FrameEncoder::new();
                self.upkeep.rest();
            }
        }
        self.control.stopped();
    }

    /// One cycle: old data is frozen, ready data is synced and committed.
    fn cycle(&mut self, reason: Reason) {
        let (volume, files) = (Arc::clone(&self.volume), Arc::clone(&self.files));
        if reason.durable {
            files.notice_removal();
        }
        if volume.is_removed() {
            return;
        }
        let dirty = files.dirty();
        for file in &dirty {
            self.push(file, reason.pressed);
        }
        let batches: Vec<Batch> = dirty.iter().filter_map(|file| self.collect(file)).collect();
        drop(dirty);
        volume.frames.pool.trim(&volume.limiter);
        let failed = volume.frames.packs.sync();
        for (pack, error) in &failed {
            tracing::warn!(
                "{}: sync failed: {error}; its data is written to another pack. Check the device \
                 of the store",
                pack.path().display()
            );
        }
        let mut packs = volume.frames.packs.abandoned();
        packs.extend(failed.iter().map(|(pack, _)| *pack));
        let cause = failed.into_iter().next();
        let cause = cause.map(|(pack, error)| Arc::new(Error::io("sync", pack.path())(error)));
        let lost = LostPacks { packs, cause };
        volume.space.keep_margin(&*volume.backing);
        for batch in batches {
            self.commit(batch, &lost);
        }
        if reason.durable {
            self.make_durable();
        }
    }

    fn make_durable(&mut self) {
        if let Some(Err(e)) = self.catalog.as_ref().map(|catalog| catalog.flush()) {
            tracing::warn!(
                "cannot write the catalog, retrying in the next cycle: {e}; check the device of \
                 the store"
            );
        }
        if let Err(e) = self.volume.sync_index() {
            tracing::warn!(
                "cannot sync the index, retrying in the next cycle: {e}; check the device of the \
                 store"
            );
        } else if let Err(e) = self.upkeep.after_durable_cycle() {
            tracing::warn!(
                "cannot free the space of deleted files, retrying in the next cycle: {e}; run \
                 `shale doctor` if it keeps failing"
            );
        }
    }

    /// Freezes data that has been dirty for too long, or everything when memory is short.
    fn push(&self, file: &Arc<File>, pressed: bool) {
        let mut locked = file.lock(&self.volume);
        let aged = locked
            .dirty_since
            .is_some_and(|since| since.elapsed() >= MAX_AGE);
        if aged || pressed {
            let jobs = freeze_all(&mut locked, |_| true);
            drop(locked);
            self.queue.send(jobs);
        }
    }

    /// Takes the data that is ready to be committed.
    fn collect(&self, file: &Arc<File>) -> Option<Batch> {
        let mut locked = file.lock(&self.volume);
        if let Some(ranges) = locked.lost.take_unnamed() {
            tracing::warn!(
                inode = file.ino,
                "{}: bytes {ranges} cannot be stored and are lost; free some space and write them \
                 again",
                self.volume.namespace.path(file.ino)
            );
        }
        let flushed = std::mem::take(&mut locked.ready);
        let whole = locked.chunks.values().all(|chunk| {
            chunk.dirty.is_empty()
                && chunk
                    .frozen
                    .as_ref()
                    .is_none_or(|frozen| flushed.iter().any(|f| Arc::ptr_eq(&f.frozen, frozen)))
        });
        if flushed.is_empty() && !(whole && locked.has_news()) {
            if locked.is_clean() {
                self.files.mark_clean(&mut locked);
            }
            return None;
        }
        // While data is missing, the size must not exceed the data that is there.
        let reached = flushed
            .iter()
            .flat_map(|f| &f.extents)
            .map(Extent::end)
            .max()
            .unwrap_or(0);
        let size = if whole {
            locked.size
        } else {
            reached.max(locked.committed_size).min(locked.size)
        };
        let size = (size != locked.committed_size).then_some(size);
        Some(Batch {
            file: Arc::clone(file),
            flushed,
            size,
        })
    }

    fn commit(&mut self, batch: Batch, lost: &LostPacks) {
        let Batch {
            file,
            mut flushed,
            size,
        } = batch;
        let volume = &*self.volume;
        let mut locked = file.lock(volume);
        let (again, good): (Vec<_>, Vec<_>) = flushed.drain(..).partition(|f| f.is_in(&lost.packs));
        let rewritten = !again.is_empty();
        if rewritten {
            locked.unsynced.clone_from(&lost.cause);
        }
        for failed in again {
            let freed = locked.thaw(failed.index, &failed.frozen, file.chunk_len() as usize);
            volume.limiter.give(freed);
        }
        // Data that has to be written again is not stored yet, but the data written with it is.
        let size = if rewritten {
            let ends = good.iter().flat_map(|f| &f.extents).map(Extent::end);
            ends.max()
        } else {
            size
        };
        // single-node: the sizes in memory are those of the index, which only this process changes.
        // A truncation since `collect` decides the size, in either direction.
        let size = size
            .map(|size| size.min(locked.size))
            .filter(|&size| size > locked.committed_size);
        match commit_extents(&mut locked, &good, size) {
            Ok(()) => {
                if !good.is_empty() {
                    volume.limiter.resume();
                    locked.warned = false;
                }
                for done in good {
                    release(volume, &mut locked, done);
                }
                if let Err(e) = locked.fold_if_due(&mut self.encoder) {
                    tracing::warn!(
                        inode = file.ino,
                        "{}: cannot fold the map, retrying after the next commit: {e}; check the \
                         device of the store",
                        volume.namespace.path(file.ino)
                    );
                }
            }
            Err(Error::Index(shale_index::Error::NotFound)) => {
                // The file was purged meanwhile: its data is not needed any more.
                for done in good {
                    release(volume, &mut locked, done);
                }
                locked.times_dirty = false;
                locked.committed_size = locked.size;
            }
            Err(error) => {
                if !std::mem::replace(&mut locked.warned, true) {
                    tracing::warn!(
                        inode = file.ino,
                        "{}: a commit failed, retrying: {error}; check the device of the store",
                        volume.namespace.path(file.ino)
                    );
                }
                let error = Arc::new(error);
                locked.fail(Arc::clone(&error));
                volume.limiter.stall(error);
                locked.ready.extend(good);
            }
        }
        locked.dirty_since = (!locked.is_clean()).then(Instant::now);
        if locked.is_clean() {
            self.files.mark_clean(&mut locked);
        }
        drop(locked);
        file.notify();
        self.files.retire(file);
    }
}

fn commit_extents(
    locked: &mut LockedFile<'_>,
    flushed: &[Flushed],
    size: Option<u64>,
) -> Result<(), Error> {
    let extents: Vec<_> = flushed.iter().flat_map(Flushed::surviving).collect();
    let mut change = DataCommit {
        size: size.filter(|&size| size != locked.committed_size),
        times: locked.times_dirty.then_some((locked.mtime, locked.ctime)),
        ..DataCommit::default()
    };
    if !extents.is_empty() {
        change.phase = (locked.size >= SETTLE_MIN).then_some(Phase::Stored);
    } else if change.size.is_none() && change.times.is_none() {
        return Ok(());
    }
    let size = change.size;
    reach(Stage::DataCommitBegins);
    locked.commit(&extents, change)?;
    reach(Stage::DataCommitted);
    locked.committed_size = size.unwrap_or(locked.committed_size);
    locked.times_dirty = false;
    Ok(())
}

/// Gives back the memory of committed bytes. Those of a chunk that is not full are likely to be
/// needed when more is written to it, and stay in the cache of decoded frames; the kernel caches
/// full ones itself.
fn release(volume: &Volume, locked: &mut LockedFile<'_>, done: Flushed) {
    let Flushed {
        index,
        frozen,
        extents,
        pins: _pins,
    } = done;
    locked.acknowledge(index, &frozen);
    volume.limiter.give(frozen.data.bytes());
    let Ok(frozen) = Arc::try_unwrap(frozen) else {
        return;
    };
    let Some(raw) = frozen.data.into_single() else {
        return;
    };
    let chunk_len = locked.file().chunk_len();
    match &extents[..] {
        [
            Extent {
                place: Place::Frame(part),
                ..
            },
        ] if raw.len() == part.raw_len as usize && (raw.len() as u64) < chunk_len => {
            volume.frames.cache.put(part.frame_at(), Arc::new(raw));
        }
        _ => {
            volume.frames.pool.put(raw, &volume.limiter);
        }
    }
}

/// Freezes the dirty chunks of a file whose oldest write is `wanted`.
pub(super) fn freeze_all(
    locked: &mut LockedFile<'_>,
    wanted: impl Fn(u64) -> bool,
) -> Vec<EncodeJob> {
    let file = locked.file();
    let indexes: Vec<u64> = locked
        .chunks
        .iter()
        .filter(|(_, chunk)| !chunk.dirty.is_empty() && wanted(chunk.dirty_seq))
        .map(|(&index, _)| index)
        .collect();
    indexes
        .into_iter()
        .filter_map(|index| {
            let frozen = locked.freeze(index)?;
            Some(EncodeJob {
                file: Arc::clone(file),
                index,
                frozen,
            })
        })
        .collect()
}
