//! Writing: bytes land in memory, whole chunks go on their way at once.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use shale_index::extent::{Extent, MAX_FILE_SIZE, Place};
use shale_index::{DataCommit, MapChange};

use crate::file::{File, FileState};
use crate::pipeline::Job;
use crate::segs::is_stream;
use crate::store::Inner;
use crate::{Error, Store};

impl Store {
    /// Writes at an offset.
    ///
    /// # Errors
    /// `EFBIG`, `ENOSPC`, or an error of writing behind that leaves no room for more.
    pub fn write(&self, file: &Arc<File>, offset: u64, data: &[u8]) -> Result<(), Error> {
        self.write_from(file, offset, data, true)
    }

    /// Writes what goes past a cache above, which tells the times of it by itself all the same.
    ///
    /// # Errors
    /// As [`Store::write`].
    pub fn write_past(&self, file: &Arc<File>, offset: u64, data: &[u8]) -> Result<(), Error> {
        self.write_from(file, offset, data, false)
    }

    fn write_from(
        &self,
        file: &Arc<File>,
        offset: u64,
        data: &[u8],
        touch: bool,
    ) -> Result<(), Error> {
        self.inner.check_writable()?;
        let end = end_of(offset, data)?;
        if data.is_empty() {
            return Ok(());
        }
        self.inner.admit(data.len() as u64)?;
        self.inner.buffer(file, offset, data, end, touch);
        Ok(())
    }

    /// Writes what a cache above has accepted before; the times are those that it tells of
    /// itself, unless `touch`. What is refused here is lost: the program that wrote it has been
    /// told that it is written.
    ///
    /// # Errors
    /// `EFBIG`, or why nothing can be stored. The range then counts as lost
    /// ([`File::lost`]).
    pub fn write_back(
        &self,
        file: &Arc<File>,
        offset: u64,
        data: &[u8],
        touch: bool,
    ) -> Result<(), Error> {
        let inner = &*self.inner;
        let end = end_of(offset, data)?;
        // Nothing can have been accepted that would be lost.
        if inner.read_only {
            return inner.check_writable();
        }
        if data.is_empty() {
            return Ok(());
        }
        let taken = inner
            .check_writable()
            .and_then(|()| inner.admit_accepted(file, data.len() as u64))
            .and_then(|()| inner.take_memory(data.len() as u64));
        if let Err(e) = taken {
            inner.lose(file, offset..end, e.errno());
            return Err(e);
        }
        inner.buffer(file, offset, data, end, touch);
        Ok(())
    }

    /// Cuts or extends a file.
    ///
    /// # Errors
    /// `EFBIG`, or when the index fails.
    pub fn truncate(&self, file: &Arc<File>, size: u64) -> Result<(), Error> {
        let inner = &*self.inner;
        inner.check_writable()?;
        if size > MAX_FILE_SIZE {
            return Err(Error::Refused(libc::EFBIG));
        }
        let mut state = file.state.lock();
        state.touch();
        let hole = (size < state.size.max(state.committed_size)).then_some((size, MAX_FILE_SIZE));
        inner.cut(file, &mut state, hole, Some(size))
    }

    /// Makes a range read as zeros and frees what it occupied; the size stays.
    ///
    /// # Errors
    /// When the index fails.
    pub fn punch(&self, file: &Arc<File>, start: u64, len: u64) -> Result<(), Error> {
        let inner = &*self.inner;
        inner.check_writable()?;
        let mut state = file.state.lock();
        let end = start.saturating_add(len).min(state.size);
        state.touch();
        let hole = (start < end).then_some((start, end));
        inner.cut(file, &mut state, hole, None)
    }
}

/// Where a write ends.
fn end_of(offset: u64, data: &[u8]) -> Result<u64, Error> {
    offset
        .checked_add(data.len() as u64)
        .filter(|&end| end <= MAX_FILE_SIZE)
        .ok_or(Error::Refused(libc::EFBIG))
}

impl Inner {
    /// Takes memory, waiting for others to be written.
    pub(crate) fn take_memory(&self, bytes: u64) -> Result<(), Error> {
        let mut waiting = None;
        let taken = self.budget.take(bytes, || {
            waiting.get_or_insert_with(Instant::now);
            self.committer.press();
        });
        if let Some(since) = waiting {
            let counters = &self.frames.packs.counters;
            counters.waits.one();
            counters.wait_nanos.time(since.elapsed());
        }
        taken
    }

    /// Puts bytes, for which memory has been taken, into chunks. Whole ones go on their way.
    fn buffer(&self, file: &Arc<File>, offset: u64, data: &[u8], end: u64, touch: bool) {
        let mut jobs = Vec::new();
        let mut state = file.state.lock();
        state.write_seq += 1;
        let seq = state.write_seq;
        let mut grown = 0;
        let mut at = offset;
        while at < end {
            let index = file.chunk_of(at);
            let (chunk_start, chunk_end) = file.chunk_range(index);
            let stop = end.min(chunk_end);
            let piece = &data[(at - offset) as usize..(stop - offset) as usize];
            let chunk = state.chunks.entry(index).or_default();
            if chunk.dirty.is_empty() {
                chunk.dirty_seq = seq;
                if is_stream(piece)
                    && let Some(buffer) = self.frames.spare.take(file.chunk_len() as usize)
                {
                    chunk.dirty.lend(buffer);
                }
            }
            let before = chunk.dirty.bytes();
            chunk.dirty.write(at, piece, file.chunk_len() as usize);
            grown += chunk.dirty.bytes() - before;
            if chunk.dirty.covers(chunk_start, chunk_end)
                && let Some(frozen) = state.freeze(index)
            {
                jobs.push(Job {
                    file: Arc::clone(file),
                    index,
                    frozen,
                });
            }
            at = stop;
        }
        state.size = state.size.max(end);
        if touch {
            state.touch();
        }
        self.mark_dirty(file, &mut state);
        state.lost.remove(offset..end);
        drop(state);
        self.budget.give(data.len() as u64 - grown);
        self.send(jobs);
    }

    /// Notes that a range of a file was accepted and cannot be stored.
    fn lose(&self, file: &Arc<File>, range: Range<u64>, errno: i32) {
        let mut state = file.state.lock();
        state.lost.insert(range, errno);
        state.fail(errno);
        self.mark_dirty(file, &mut state);
    }

    /// Cuts a hole out of memory and map and commits that together with a new size.
    fn cut(
        &self,
        file: &File,
        state: &mut FileState,
        hole: Option<(u64, u64)>,
        size: Option<u64>,
    ) -> Result<(), Error> {
        let commit = DataCommit {
            size,
            times: Some((state.mtime, state.ctime)),
            ..DataCommit::default()
        };
        let mut extents = Vec::new();
        if let Some((start, end)) = hole {
            let below = self.extents(file, state, start, end)?;
            // Beyond the last extent there is nothing to hide.
            if let (Some(first), Some(last)) = (below.first(), below.last()) {
                let offset = first.offset.max(start);
                extents.push(Extent {
                    offset,
                    len: last.end() - offset,
                    place: Place::Hole,
                });
            }
        }
        self.commit_laid(file, state, &extents, commit)?;
        if let Some((start, end)) = hole {
            let freed = state.cut(start, end, |offset| file.chunk_of(offset));
            self.budget.give(freed);
            state.lost.remove(start..end);
        }
        if let Some(size) = size {
            state.size = size;
            state.committed_size = size;
            state.lost.remove(size..u64::MAX);
        }
        state.times_dirty = false;
        Ok(())
    }

    /// Commits extents of a file, with whatever else the commit says.
    pub(crate) fn commit_laid(
        &self,
        file: &File,
        state: &mut FileState,
        extents: &[Extent],
        mut commit: DataCommit,
    ) -> Result<(), Error> {
        let mut attempt = || {
            if !extents.is_empty() {
                self.load_map(file, state)?;
                self.lay(state, extents, &mut commit)?;
            }
            self.namespace.commit_data(file.ino, &commit)?;
            Ok(())
        };
        if let Err(e) = attempt() {
            // Some of them may lie in it though the index knows none: whoever covered those
            // would subtract from packs what was never added.
            state.map = None;
            return Err(e);
        }
        self.frames.packs.account(&commit.packs);
        if let Some(map) = state.map.as_mut()
            && commit.map != MapChange::Keep
        {
            map.committed(matches!(commit.map, MapChange::Fold(_)));
        }
        Ok(())
    }

    /// Lays extents over the map in memory and puts what follows from that into a commit.
    fn lay(
        &self,
        state: &mut FileState,
        extents: &[Extent],
        commit: &mut DataCommit,
    ) -> Result<(), Error> {
        let Some(map) = state.map.as_mut() else {
            return Err(Error::Poisoned);
        };
        commit.map = match map.inline_with(extents) {
            Some(all) => MapChange::Fold(shale_index::schema::MapRoot::Inline(all)),
            None => MapChange::Append(extents.to_vec()),
        };
        for extent in extents {
            if let Some(pack) = extent.place.pack() {
                *commit.packs.entry(pack).or_default() += extent.stored() as i64;
                commit.stored += extent.stored() as i64;
            }
        }
        for extent in map.insert(&self.frames, extents)? {
            if let Some(pack) = extent.place.pack() {
                *commit.packs.entry(pack).or_default() -= extent.stored() as i64;
                commit.stored -= extent.stored() as i64;
            }
        }
        Ok(())
    }

    /// Notes that a file has something to be written.
    pub(crate) fn mark_dirty(&self, file: &Arc<File>, state: &mut FileState) {
        if state.dirty_since.is_none() {
            state.dirty_since = Some(Instant::now());
            self.dirty.lock().insert(file.ino, Arc::clone(file));
        }
    }
}
