//! Durability on request: `fsync` of a file, of the names, and of everything.

use std::sync::Arc;

use super::Writer;
use super::commit::freeze_all;
use crate::Error;
use crate::file::{File, FileRef};

/// How often a sync rewrites data whose pack could not be synced, before it gives up.
const ATTEMPTS: u32 = 3;

impl Writer {
    /// Returns when everything written to a file before the call is durable, with its size, its
    /// times and its name.
    pub(crate) fn sync(&self, file: &Arc<File>) -> Result<(), Error> {
        let volume = &*self.volume;
        volume.check()?;
        volume.check_there()?;
        if volume.read_only {
            return Ok(());
        }
        let (failures, target) = {
            let locked = file.lock(volume);
            (locked.failure.seq, locked.write_seq)
        };
        for _ in 0..ATTEMPTS {
            self.flush(file, target);
            self.commits.run()?;
            volume.check()?;
            volume.check_there()?;
            let mut locked = file.lock(volume);
            if locked.failure.seq != failures
                && let Some(error) = locked.failure.error()
            {
                return Err(error);
            }
            if !locked.is_waiting(target) {
                let lost = locked.lost.cause().map(Error::write_behind);
                if locked.is_shared() {
                    // The caller may also want to see what others have synced.
                    locked.refresh()?;
                }
                drop(locked);
                volume.sync_index()?;
                return lost.map_or(Ok(()), Err);
            }
        }
        let mut locked = file.lock(volume);
        let cause = locked.unsynced.clone();
        let cause = cause.unwrap_or_else(|| Arc::new(Error::NotDurable));
        locked.fail(Arc::clone(&cause));
        Err(Error::write_behind(&cause))
    }

    /// Returns when every change of names and attributes before the call is durable.
    pub(crate) fn sync_metadata(&self) -> Result<(), Error> {
        self.volume.check()?;
        self.files.notice_removal();
        self.volume.check_there()?;
        // Handed to the operating system a second time, beside the data.
        if let Some(catalog) = &self.catalog {
            catalog.flush()?;
        }
        self.volume.sync_index()
    }

    /// Returns when everything written before the call is durable.
    pub(crate) fn sync_all(&self) -> Result<(), Error> {
        let volume = &*self.volume;
        if volume.read_only {
            return volume.check();
        }
        let mut cause = Arc::new(Error::NotDurable);
        let mut files: Vec<(FileRef<'_>, u64)> = self
            .files
            .dirty()
            .into_iter()
            .map(|file| {
                let target = file.lock(volume).write_seq;
                (file, target)
            })
            .collect();
        for _ in 0..ATTEMPTS {
            for (file, target) in &files {
                self.flush(file, *target);
            }
            self.commits.run()?;
            volume.check_there()?;
            files.retain(|(file, target)| {
                let locked = file.lock(volume);
                let waits = locked.is_waiting(*target) || !locked.lost.is_empty();
                if waits {
                    let failure = locked.failure.cause.as_ref().or(locked.unsynced.as_ref());
                    if let Some(failure) = failure {
                        cause = Arc::clone(failure);
                    }
                }
                waits
            });
            if files.is_empty() {
                return self.sync_metadata();
            }
        }
        Err(Error::write_behind(&cause))
    }

    /// Has all data of a file that was written up to a time encoded, and waits until it is ready to
    /// be committed or something has failed.
    fn flush(&self, file: &Arc<File>, target: u64) {
        let volume = &*self.volume;
        let mut locked = file.lock(volume);
        let failures = locked.failure.seq;
        // Failed data is dirty again. The caller decides whether to retry.
        while locked.failure.seq == failures && volume.check().is_ok() && !volume.is_removed() {
            let jobs = freeze_all(&mut locked, |seq| seq <= target);
            if !jobs.is_empty() {
                drop(locked);
                self.queue.send(jobs);
                locked = file.lock(volume);
                continue;
            }
            let waiting = locked.chunks.iter().any(|(index, chunk)| {
                let dirty = !chunk.dirty.is_empty() && chunk.dirty_seq <= target;
                let moving = chunk
                    .frozen
                    .as_ref()
                    .is_some_and(|frozen| frozen.seq <= target)
                    && !locked.ready.iter().any(|flushed| flushed.index == *index);
                dirty || moving
            });
            if !waiting {
                return;
            }
            // Dirty bytes above frozen ones that only wait for a commit.
            if locked.ready.iter().any(|flushed| {
                locked
                    .chunks
                    .get(&flushed.index)
                    .is_some_and(|c| !c.dirty.is_empty())
            }) {
                self.commits.kick();
            }
            locked.wait();
        }
    }
}
