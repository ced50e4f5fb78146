//! The committer: makes frames durable, then tells the index about them.
//!
//! One thread does this for all files, so that one sync serves everybody who waits for it.

mod control;

use std::sync::Arc;
use std::time::{Duration, Instant};

use shale_backing::failpoint::{Stage, reach};
use shale_index::extent::{Extent, Place};
use shale_index::schema::Phase;
use shale_index::{DataCommit, MapChange};

use crate::file::{File, FileState, Flushed};
use crate::files::Held;
use crate::frames::FrameEncoder;
use crate::idle::Watch;
use crate::pipeline::Job;
use crate::store::Inner;
use crate::{Error, Store};

pub(crate) use control::Control;
use control::Reason;

/// Age at which unwritten data is written even if its chunk is not full.
const MAX_AGE: Duration = Duration::from_secs(2);

/// Smaller files are not settled: there is next to nothing to gain.
pub(crate) const SETTLE_MIN: u64 = 64 << 10;

/// The committer's thread.
pub(crate) fn work(inner: &Inner) {
    let mut encoder = FrameEncoder::new();
    let mut watch = Watch::new();
    while let Some(reason) = inner.committer.next() {
        let cycle = std::panic::AssertUnwindSafe(|| inner.cycle(reason, &mut encoder));
        if std::panic::catch_unwind(cycle).is_err() {
            inner.poison("the committer panicked");
            inner.committer.end();
            break;
        }
        inner.committer.end();
        if watch.is_due(inner) {
            encoder = FrameEncoder::new();
            inner.rest();
        }
    }
    inner.committer.stopped();
}

/// How often a sync writes data again whose pack could not be synced, before it gives up.
const ATTEMPTS: u32 = 3;

/// What a cycle takes from a file.
struct Batch {
    file: Arc<File>,
    flushed: Vec<Flushed>,
    size: Option<u64>,
}

impl Store {
    /// Returns when everything written to a file before the call is durable, with its size, its
    /// times and its name.
    ///
    /// # Errors
    /// What prevented it; the data stays in memory and the next sync tries again.
    pub fn sync(&self, file: &Arc<File>) -> Result<(), Error> {
        let inner = &*self.inner;
        inner.check()?;
        inner.check_there()?;
        if inner.read_only {
            return Ok(());
        }
        let (failures, target) = {
            let state = file.state.lock();
            (state.failure.seq, state.write_seq)
        };
        for _ in 0..ATTEMPTS {
            inner.flush(file, target);
            inner.committer.run()?;
            inner.check()?;
            inner.check_there()?;
            let state = file.state.lock();
            if state.failure.seq != failures {
                return Err(Error::Refused(state.failure.errno));
            }
            if !state.is_waiting(target) {
                let lost = state.lost.errno();
                drop(state);
                inner.durable()?;
                return lost.map_or(Ok(()), |errno| Err(Error::Refused(errno)));
            }
        }
        let mut state = file.state.lock();
        let errno = state.lost_errno;
        state.fail(errno);
        Err(Error::Refused(errno))
    }

    /// Returns when every change of names and attributes before the call is durable.
    ///
    /// # Errors
    /// What prevented it.
    pub fn sync_metadata(&self) -> Result<(), Error> {
        self.inner.check()?;
        self.inner.notice_removal();
        self.inner.check_there()?;
        self.inner.log_catalog()?;
        self.inner.durable()
    }

    /// Returns when everything written before the call is durable.
    ///
    /// # Errors
    /// What prevented it for any of the files.
    pub fn sync_all(&self) -> Result<(), Error> {
        let inner = &*self.inner;
        if inner.read_only {
            return inner.check();
        }
        let mut errno = 0;
        let mut files: Vec<(Held<'_>, u64)> = inner
            .dirty_files()
            .into_iter()
            .map(|file| {
                let target = file.state.lock().write_seq;
                (file, target)
            })
            .collect();
        for _ in 0..ATTEMPTS {
            for (file, target) in &files {
                inner.flush(file, *target);
            }
            inner.committer.run()?;
            inner.check_there()?;
            files.retain(|(file, target)| {
                let state = file.state.lock();
                let waits = state.is_waiting(*target) || !state.lost.is_empty();
                if waits {
                    errno = if state.failure.errno == 0 {
                        state.lost_errno
                    } else {
                        state.failure.errno
                    };
                }
                waits
            });
            if files.is_empty() {
                return self.sync_metadata();
            }
        }
        Err(Error::Refused(errno))
    }
}

impl Inner {
    /// Hands what has been committed to the operating system a second time, beside the data.
    fn log_catalog(&self) -> Result<(), Error> {
        self.catalog
            .as_ref()
            .map_or(Ok(()), crate::catalog::Catalog::flush)
    }

    /// Makes the index durable.
    fn durable(&self) -> Result<(), Error> {
        let kv = self.namespace.kv();
        kv.sync(kv.version())?;
        Ok(())
    }

    /// Sends everything of a file that was written up to a time through the pipeline and waits
    /// for it, until it is ready to be committed or something has failed.
    fn flush(&self, file: &Arc<File>, target: u64) {
        let mut state = file.state.lock();
        let failures = state.failure.seq;
        // What has failed is dirty again, and not to be tried again behind the caller's back.
        while state.failure.seq == failures && self.check().is_ok() && !self.is_removed() {
            let jobs = freeze_all(file, &mut state, |seq| seq <= target);
            if !jobs.is_empty() {
                drop(state);
                self.send(jobs);
                state = file.state.lock();
                continue;
            }
            let waiting = state.chunks.iter().any(|(index, chunk)| {
                let dirty = !chunk.dirty.is_empty() && chunk.dirty_seq <= target;
                let moving = chunk
                    .frozen
                    .as_ref()
                    .is_some_and(|frozen| frozen.seq <= target)
                    && !state.ready.iter().any(|flushed| flushed.index == *index);
                dirty || moving
            });
            if !waiting {
                return;
            }
            // Dirty bytes above frozen ones that only wait for a commit.
            if state.ready.iter().any(|flushed| {
                state
                    .chunks
                    .get(&flushed.index)
                    .is_some_and(|c| !c.dirty.is_empty())
            }) {
                self.committer.kick();
            }
            file.moved.wait(&mut state);
        }
    }

    /// One round: what is old is sent on its way, what is ready is synced and committed.
    fn cycle(&self, reason: Reason, encoder: &mut FrameEncoder) {
        if reason.durable {
            self.notice_removal();
        }
        if self.is_removed() {
            return;
        }
        let files = self.dirty_files();
        for file in &files {
            self.push(file, reason.pressed);
        }
        let batches: Vec<Batch> = files.iter().filter_map(|file| self.collect(file)).collect();
        drop(files);
        self.frames.spare.trim(&self.budget);
        let failed = self.frames.packs.sync();
        for (pack, error) in &failed {
            tracing::warn!("pack {pack:x} could not be synced, its data is written again: {error}");
        }
        let mut lost = self.frames.packs.abandoned();
        lost.extend(failed.iter().map(|(pack, _)| *pack));
        let errno = failed.iter().find_map(|(_, error)| error.raw_os_error());
        self.space.keep_margin(&*self.backing);
        for batch in batches {
            self.commit(batch, &lost, errno.unwrap_or(libc::EIO), encoder);
        }
        if reason.durable {
            let kv = self.namespace.kv();
            if let Err(e) = self.log_catalog() {
                tracing::warn!("the catalogue could not be written, it will be tried again: {e}");
            }
            if let Err(e) = kv.sync(kv.version()) {
                tracing::warn!("the index could not be synced, it will be tried again: {e}");
            } else if let Err(e) = self.clean_up() {
                tracing::warn!("cleaning up is put off: {e}");
            }
        }
    }

    /// Freezes what has been dirty for too long, or everything when memory is short.
    fn push(&self, file: &Arc<File>, pressed: bool) {
        let mut state = file.state.lock();
        let aged = state
            .dirty_since
            .is_some_and(|since| since.elapsed() >= MAX_AGE);
        if aged || pressed {
            let jobs = freeze_all(file, &mut state, |_| true);
            drop(state);
            self.send(jobs);
        }
    }

    /// Takes what is ready to be committed.
    fn collect(&self, file: &Arc<File>) -> Option<Batch> {
        let mut state = file.state.lock();
        if let Some(ranges) = state.lost.take_unnamed() {
            tracing::warn!(
                inode = file.ino,
                "{}: bytes {ranges} cannot be stored and are lost; free some space and write them \
                 again",
                self.namespace.path(file.ino)
            );
        }
        let flushed = std::mem::take(&mut state.ready);
        let whole = state.chunks.values().all(|chunk| {
            chunk.dirty.is_empty()
                && chunk
                    .frozen
                    .as_ref()
                    .is_none_or(|frozen| flushed.iter().any(|f| Arc::ptr_eq(&f.frozen, frozen)))
        });
        if flushed.is_empty() && !(whole && state.has_news()) {
            if state.is_clean() {
                self.forget_dirty(file.ino, &mut state);
            }
            return None;
        }
        // While something is missing, the size must not go beyond what is there.
        let reached = flushed
            .iter()
            .flat_map(|f| &f.extents)
            .map(Extent::end)
            .max()
            .unwrap_or(0);
        let size = if whole {
            state.size
        } else {
            reached.max(state.committed_size).min(state.size)
        };
        let size = (size != state.committed_size).then_some(size);
        Some(Batch {
            file: Arc::clone(file),
            flushed,
            size,
        })
    }

    /// `errno` is why packs were lost.
    fn commit(&self, batch: Batch, lost: &[u64], errno: i32, encoder: &mut FrameEncoder) {
        let Batch {
            file,
            mut flushed,
            size,
        } = batch;
        let mut state = file.state.lock();
        let (again, good): (Vec<_>, Vec<_>) = flushed.drain(..).partition(|f| f.is_in(lost));
        let rewritten = !again.is_empty();
        if rewritten {
            state.lost_errno = errno;
        }
        for failed in again {
            let freed = state.thaw(failed.index, &failed.frozen, file.chunk_len() as usize);
            self.budget.give(freed);
        }
        // What has to be written again is not there yet, but what was written with it is.
        let size = if rewritten {
            let ends = good.iter().flat_map(|f| &f.extents).map(Extent::end);
            ends.max()
        } else {
            size
        };
        // A truncation since `collect` has the last word about the size, whichever way it went.
        let size = size
            .map(|size| size.min(state.size))
            .filter(|&size| size > state.committed_size);
        match self.commit_extents(&file, &mut state, &good, size) {
            Ok(()) => {
                if !good.is_empty() {
                    self.budget.stall(0);
                    state.warned = false;
                }
                for done in good {
                    self.release(&file, &mut state, done);
                }
                if state
                    .map
                    .as_ref()
                    .is_some_and(crate::map::FileMap::wants_fold)
                    && let Err(e) = self.fold(&file, &mut state, encoder, &[])
                {
                    tracing::warn!(
                        inode = file.ino,
                        "{}: folding is put off: {e}",
                        self.namespace.path(file.ino)
                    );
                }
            }
            Err(Error::Index(shale_index::Error::Refused(libc::ENOENT))) => {
                // Purged meanwhile: nobody wants the data any more.
                for done in good {
                    self.release(&file, &mut state, done);
                }
                state.times_dirty = false;
                state.committed_size = state.size;
            }
            Err(error) => {
                if !std::mem::replace(&mut state.warned, true) {
                    tracing::warn!(
                        inode = file.ino,
                        "{}: a commit failed and is tried again: {error}",
                        self.namespace.path(file.ino)
                    );
                }
                state.fail(error.errno());
                self.budget.stall(error.errno());
                state.ready.extend(good);
            }
        }
        state.dirty_since = (!state.is_clean()).then(Instant::now);
        if state.is_clean() {
            self.forget_dirty(file.ino, &mut state);
        }
        drop(state);
        file.moved.notify_all();
        self.retire(file);
    }

    fn commit_extents(
        &self,
        file: &File,
        state: &mut FileState,
        flushed: &[Flushed],
        size: Option<u64>,
    ) -> Result<(), Error> {
        let extents: Vec<_> = flushed.iter().flat_map(Flushed::surviving).collect();
        let mut commit = DataCommit {
            size: size.filter(|&size| size != state.committed_size),
            times: state.times_dirty.then_some((state.mtime, state.ctime)),
            ..DataCommit::default()
        };
        if !extents.is_empty() {
            commit.phase = (state.size >= SETTLE_MIN).then_some(Phase::Loose);
        } else if commit.size.is_none() && commit.times.is_none() {
            return Ok(());
        }
        let size = commit.size;
        reach(Stage::DataCommitBegins);
        self.commit_laid(file, state, &extents, commit)?;
        reach(Stage::DataCommitted);
        state.committed_size = size.unwrap_or(state.committed_size);
        state.times_dirty = false;
        Ok(())
    }

    /// Gives back the memory of committed bytes. Those of a chunk that is not full are likely to
    /// be needed when more is written to it, and stay in the cache of decoded frames; full ones
    /// the kernel has in its own cache.
    fn release(&self, file: &File, state: &mut FileState, done: Flushed) {
        let Flushed {
            index,
            frozen,
            extents,
            pins: _pins,
        } = done;
        state.settle(index, &frozen);
        self.budget.give(frozen.segs.bytes());
        let Ok(frozen) = Arc::try_unwrap(frozen) else {
            return;
        };
        let Some(raw) = frozen.segs.into_single() else {
            return;
        };
        match &extents[..] {
            [
                Extent {
                    place: Place::Frame(part),
                    ..
                },
            ] if raw.len() == part.raw_len as usize && (raw.len() as u64) < file.chunk_len() => {
                self.frames.cache.put((part.pack, part.at), Arc::new(raw));
            }
            _ => {
                self.frames.spare.put(raw, &self.budget);
            }
        }
    }

    /// Merges the commit records of a file into map segments.
    pub(crate) fn fold(
        &self,
        file: &File,
        state: &mut FileState,
        encoder: &mut FrameEncoder,
        avoid: &[u64],
    ) -> Result<(), Error> {
        self.load_map(file, state)?;
        let Some(map) = state.map.as_mut() else {
            return Err(Error::Poisoned);
        };
        let folded = map.fold(&self.frames, encoder, avoid)?;
        reach(Stage::FoldWritten);
        self.frames.packs.make_durable(&folded.pins)?;
        let commit = DataCommit {
            map: MapChange::Fold(folded.root.clone()),
            packs: folded.packs.clone(),
            ..DataCommit::default()
        };
        self.namespace.commit_data(file.ino, &commit)?;
        reach(Stage::FoldCommitted);
        self.frames.packs.account(&commit.packs);
        map.adopt(folded);
        Ok(())
    }

    fn forget_dirty(&self, ino: u64, state: &mut FileState) {
        state.dirty_since = None;
        self.dirty.lock().remove(&ino);
    }
}

fn freeze_all(file: &Arc<File>, state: &mut FileState, wanted: impl Fn(u64) -> bool) -> Vec<Job> {
    let indexes: Vec<u64> = state
        .chunks
        .iter()
        .filter(|(_, chunk)| !chunk.dirty.is_empty() && wanted(chunk.dirty_seq))
        .map(|(&index, _)| index)
        .collect();
    indexes
        .into_iter()
        .filter_map(|index| {
            let frozen = state.freeze(index)?;
            Some(Job {
                file: Arc::clone(file),
                index,
                frozen,
            })
        })
        .collect()
}
