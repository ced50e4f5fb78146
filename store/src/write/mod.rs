//! Writing: bytes land in memory, whole chunks are encoded at once, the committer makes them
//! durable.

mod admission;
mod commit;
mod control;
mod encode;
mod sync;
mod truncate;

use std::ops::Range;
use std::sync::Arc;

use shale_index::extent::MAX_FILE_SIZE;

use crate::Error;
use crate::catalog::Catalog;
use crate::file::{File, FileTable, is_stream};
use crate::volume::Volume;
pub use admission::Asked;
pub(crate) use admission::{Admission, FREED_MIN, Reclaim};
pub(crate) use commit::{Committer, Upkeep};
pub(crate) use control::CommitControl;
use encode::EncodeJob;
pub(crate) use encode::{EncodeQueue, EncodeWorker};

/// Writes files and makes them durable.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) volume: Arc<Volume>,
    pub(crate) files: Arc<FileTable>,
    pub(crate) queue: Arc<EncodeQueue>,
    pub(crate) commits: Arc<CommitControl>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) catalog: Option<Arc<Catalog>>,
}

/// Whether a write changes the times of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Times {
    /// It does.
    Touch,
    /// A cache above reports the times itself.
    Keep,
}

impl Writer {
    /// Writes at an offset.
    pub(crate) fn write(
        &self,
        file: &Arc<File>,
        offset: u64,
        data: &[u8],
        times: Times,
    ) -> Result<(), Error> {
        self.volume.check_writable()?;
        let range = range_of(offset, data)?;
        if data.is_empty() {
            return Ok(());
        }
        self.admission.admit(data.len() as u64)?;
        self.buffer(file, &range, data, times);
        Ok(())
    }

    /// Writes data that a cache above has accepted before. Data that is refused here is lost:
    /// `write` has already succeeded for the program.
    pub(crate) fn write_back(
        &self,
        file: &Arc<File>,
        offset: u64,
        data: &[u8],
        times: Times,
    ) -> Result<(), Error> {
        let range = range_of(offset, data)?;
        // No accepted data can be lost here.
        if self.volume.read_only {
            return self.volume.check_writable();
        }
        if data.is_empty() {
            return Ok(());
        }
        let len = data.len() as u64;
        let taken = self
            .volume
            .check_writable()
            .and_then(|()| self.admission.admit_accepted(file, len))
            .and_then(|()| self.admission.take_memory(len));
        if let Err(e) = taken {
            let cause = Arc::new(e);
            self.lose(file, range, Arc::clone(&cause));
            return Err(Error::write_behind(&cause));
        }
        self.buffer(file, &range, data, times);
        Ok(())
    }

    /// Puts bytes, for which memory has been taken, into chunks. Full chunks are sent to be
    /// encoded.
    fn buffer(&self, file: &Arc<File>, range: &Range<u64>, data: &[u8], times: Times) {
        let mut jobs = Vec::new();
        let mut locked = file.lock(&self.volume);
        locked.write_seq += 1;
        let seq = locked.write_seq;
        let mut grown = 0;
        let mut at = range.start;
        while at < range.end {
            let index = file.chunk_of(at);
            let whole = file.chunk_range(index);
            let stop = range.end.min(whole.end);
            let piece = &data[(at - range.start) as usize..(stop - range.start) as usize];
            let chunk = locked.chunks.entry(index).or_default();
            if chunk.dirty.is_empty() {
                chunk.dirty_seq = seq;
                if is_stream(piece)
                    && let Some(buffer) = self.volume.frames.pool.take(file.chunk_len() as usize)
                {
                    chunk.dirty.lend(buffer);
                }
            }
            let before = chunk.dirty.bytes();
            chunk.dirty.write(at, piece, file.chunk_len() as usize);
            grown += chunk.dirty.bytes() - before;
            if chunk.dirty.covers(&whole)
                && let Some(frozen) = locked.freeze(index)
            {
                jobs.push(EncodeJob {
                    file: Arc::clone(file),
                    index,
                    frozen,
                });
            }
            at = stop;
        }
        locked.size = locked.size.max(range.end);
        if times == Times::Touch {
            locked.touch();
        }
        self.files.mark_dirty(&mut locked);
        locked.lost.remove(range.clone());
        drop(locked);
        self.volume.limiter.give(data.len() as u64 - grown);
        self.queue.send(jobs);
    }

    /// Notes that a range of a file was accepted and cannot be stored.
    fn lose(&self, file: &Arc<File>, range: Range<u64>, cause: Arc<Error>) {
        let mut locked = file.lock(&self.volume);
        locked.lost.insert(range, Arc::clone(&cause));
        locked.fail(cause);
        self.files.mark_dirty(&mut locked);
    }
}

/// The range that a write covers.
fn range_of(offset: u64, data: &[u8]) -> Result<Range<u64>, Error> {
    let end = offset
        .checked_add(data.len() as u64)
        .filter(|&end| end <= MAX_FILE_SIZE)
        .ok_or(Error::TooLarge)?;
    Ok(offset..end)
}
