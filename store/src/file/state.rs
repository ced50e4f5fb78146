//! One file in memory: its state and its unwritten data.

use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Instant;

use shale_codec::Effort;
use shale_index::Ino;
use shale_index::schema::{Inode, Time};

use super::chunk::{Chunk, Flushed, Frozen};
use super::cursor::{ReadCursor, ReadWindow};
use super::dirty::DirtyBytes;
use super::hints::{HintSpan, LayoutHints, spans};
use super::lost::LostRanges;
use super::traffic::TrafficMeter;
use crate::Error;
use crate::map::FileMap;
use crate::primitives::{Condvar, Mutex};

/// A regular file that is open or has unwritten data. All users of the file share it.
#[derive(Debug)]
pub struct File {
    pub(crate) ino: Ino,
    /// Changes only under the lock of the state, and while no chunk is in memory.
    chunk_shift: AtomicU8,
    /// How later writes are encoded; `None` is the default of the store.
    effort: Mutex<Option<Effort>>,
    pub(super) state: Mutex<FileState>,
    /// Signalled when a chunk has been encoded, committed or has failed.
    pub(super) moved: Condvar,
    hints: Mutex<Option<Arc<dyn LayoutHints>>>,
    cursor: Mutex<ReadCursor>,
    pub(super) traffic: Arc<TrafficMeter>,
    /// A writer has asked for room before a write to this file.
    asked: AtomicBool,
    /// It is known to have no capabilities that a write takes away.
    unprivileged: AtomicBool,
}

/// What the lock of a file protects.
#[derive(Debug)]
pub(crate) struct FileState {
    pub(crate) size: u64,
    /// Size as the index has it.
    pub(crate) committed_size: u64,
    pub(crate) mtime: Time,
    pub(crate) ctime: Time,
    /// The times are newer than those in the index.
    pub(crate) times_dirty: bool,
    /// Loaded when first needed.
    pub(super) map: Option<FileMap>,
    pub(crate) chunks: BTreeMap<u64, Chunk>,
    /// Chunks whose frames are in packs and wait for a commit.
    pub(crate) ready: Vec<Flushed>,
    /// Counts writes, so that a sync knows what it has to wait for.
    pub(crate) write_seq: u64,
    /// Why the sync of the last pack with data of this file failed.
    pub(crate) unsynced: Option<Arc<Error>>,
    pub(crate) dirty_since: Option<Instant>,
    pub(crate) failure: Failure,
    /// The log has reported that data cannot be stored.
    pub(crate) warned: bool,
    pub(crate) lost: LostRanges,
    /// Records that this session has added since it last looked whether to fold.
    pub(super) unfolded: u32,
}

/// The last error of write-behind. Each handle reports it once.
#[derive(Clone, Debug, Default)]
pub struct Failure {
    pub(crate) seq: u64,
    pub(crate) cause: Option<Arc<Error>>,
}

impl Failure {
    /// Number of the failure; 0 is none.
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// The failure as an error.
    #[must_use]
    pub fn error(&self) -> Option<Error> {
        self.cause.as_ref().map(Error::write_behind)
    }
}

impl File {
    pub(crate) fn new(inode: &Inode, traffic: Arc<TrafficMeter>) -> Self {
        Self {
            ino: inode.ino,
            chunk_shift: AtomicU8::new(inode.chunk_shift),
            effort: Mutex::new(None),
            state: Mutex::new(FileState {
                size: inode.size,
                committed_size: inode.size,
                mtime: inode.mtime,
                ctime: inode.ctime,
                times_dirty: false,
                map: None,
                chunks: BTreeMap::new(),
                ready: Vec::new(),
                write_seq: 0,
                unsynced: None,
                dirty_since: None,
                failure: Failure::default(),
                warned: false,
                lost: LostRanges::default(),
                unfolded: 0,
            }),
            moved: Condvar::new(),
            hints: Mutex::new(None),
            cursor: Mutex::default(),
            traffic,
            asked: AtomicBool::new(false),
            unprivileged: AtomicBool::new(false),
        }
    }

    /// Sets the hints for later writes.
    pub fn set_hints(&self, hints: Option<Arc<dyn LayoutHints>>) {
        *self.hints.lock() = hints;
    }

    /// The spans of a range; the whole range where nothing is known.
    pub(crate) fn spans(&self, range: Range<u64>) -> Vec<HintSpan> {
        let hints = self.hints.lock().clone();
        spans(hints.as_deref(), range)
    }

    /// Follows a read: what to decode ahead and what to let go behind, when it is time to.
    pub(crate) fn follow_read(&self, offset: u64, len: u64, limit: u64) -> Option<ReadWindow> {
        self.cursor.lock().follow(offset, len, limit)
    }

    /// Counts bytes that a program has read.
    pub fn note_read(&self, bytes: usize) {
        self.traffic.note_read(bytes as u64);
    }

    /// Counts bytes that a program has written.
    pub fn note_written(&self, bytes: usize) {
        self.traffic.note_written(bytes as u64);
    }

    /// Whether it is known to have no capabilities that a write takes away.
    #[must_use]
    pub fn is_unprivileged(&self) -> bool {
        self.unprivileged.load(Ordering::Relaxed)
    }

    /// Notes whether it is known to have no such capabilities.
    pub fn note_unprivileged(&self, known: bool) {
        self.unprivileged.store(known, Ordering::Relaxed);
    }

    /// Sets how later writes are encoded.
    pub fn set_effort(&self, effort: Effort) {
        *self.effort.lock() = Some(effort);
    }

    pub(crate) fn effort(&self) -> Option<Effort> {
        *self.effort.lock()
    }

    /// Notes that a writer has asked for room before a write to this file.
    pub(crate) fn note_asked(&self) {
        self.asked.store(true, Ordering::SeqCst);
    }

    /// Whether a writer has asked for room before a write to this file.
    pub(crate) fn was_asked_for(&self) -> bool {
        self.asked.load(Ordering::SeqCst)
    }

    /// Wakes all threads that wait for an event of the file.
    pub(crate) fn notify(&self) {
        self.moved.notify_all();
    }

    /// Its inode number.
    #[must_use]
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// Its size, with everything that has been written.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.state.lock().size
    }

    /// The last error of write-behind.
    #[must_use]
    pub fn failure(&self) -> Failure {
        self.state.lock().failure.clone()
    }

    /// Ranges that were accepted and could not be stored, in order. Syncing fails until they have
    /// been written again or truncated.
    #[must_use]
    pub fn lost(&self) -> Vec<Range<u64>> {
        self.state.lock().lost.ranges().to_vec()
    }

    pub(crate) fn chunk_shift(&self) -> u8 {
        self.chunk_shift.load(Ordering::Relaxed)
    }

    /// The caller has the state locked and has seen that no chunk is in memory.
    pub(crate) fn set_chunk_shift(&self, shift: u8) {
        self.chunk_shift.store(shift, Ordering::Relaxed);
    }

    pub(crate) fn chunk_len(&self) -> u64 {
        1 << self.chunk_shift()
    }

    pub(crate) fn chunk_of(&self, offset: u64) -> u64 {
        offset >> self.chunk_shift()
    }

    pub(crate) fn chunk_range(&self, index: u64) -> Range<u64> {
        let shift = self.chunk_shift();
        index << shift..(index + 1) << shift
    }
}

impl FileState {
    /// Whether the index has everything.
    pub(crate) fn is_clean(&self) -> bool {
        self.chunks.is_empty() && self.ready.is_empty() && !self.has_news() && self.lost.is_empty()
    }

    /// Whether a write up to a given time has not been committed.
    pub(crate) fn is_waiting(&self, target: u64) -> bool {
        let waits = |chunk: &Chunk| {
            !chunk.dirty.is_empty() && chunk.dirty_seq <= target
                || chunk.frozen.as_ref().is_some_and(|f| f.seq <= target)
        };
        self.chunks.values().any(waits)
    }

    /// Whether size or times are newer than those in the index.
    pub(crate) fn has_news(&self) -> bool {
        self.times_dirty || self.size != self.committed_size
    }

    /// The end of the bytes in memory that are not committed; 0 when there are none.
    pub(crate) fn unwritten_end(&self) -> u64 {
        self.chunks.values().map(Chunk::end).max().unwrap_or(0)
    }

    /// Bytes in memory that are not committed.
    pub(crate) fn unwritten(&self) -> u64 {
        let frozen = |chunk: &Chunk| chunk.frozen.as_ref().map_or(0, |f| f.data.bytes());
        self.chunks
            .values()
            .map(|chunk| chunk.dirty.bytes() + frozen(chunk))
            .sum()
    }

    pub(crate) fn touch(&mut self) {
        let now = Time::now();
        self.mtime = now;
        self.ctime = now;
        self.times_dirty = true;
    }

    pub(crate) fn fail(&mut self, cause: Arc<Error>) {
        self.failure = Failure {
            seq: self.failure.seq + 1,
            cause: Some(cause),
        };
    }

    /// Freezes the dirty bytes of a chunk. `None` when there are none or older ones are still
    /// frozen.
    pub(crate) fn freeze(&mut self, index: u64) -> Option<Arc<Frozen>> {
        let chunk = self.chunks.get_mut(&index)?;
        if chunk.dirty.is_empty() || chunk.frozen.is_some() {
            return None;
        }
        let frozen = Arc::new(Frozen {
            data: std::mem::take(&mut chunk.dirty),
            seq: chunk.dirty_seq,
            punched: Mutex::default(),
        });
        chunk.frozen = Some(Arc::clone(&frozen));
        Some(frozen)
    }

    /// Makes frozen bytes dirty again, below newer writes.
    pub(crate) fn thaw(&mut self, index: u64, frozen: &Arc<Frozen>, room: usize) -> u64 {
        let Some(chunk) = self.chunks.get_mut(&index) else {
            return 0;
        };
        if !chunk.is_frozen_as(frozen) {
            return 0;
        }
        let before = frozen.data.bytes() + chunk.dirty.bytes();
        let mut older = DirtyBytes::default();
        for (offset, piece) in frozen.data.iter() {
            older.write(offset, piece, room);
        }
        for hole in frozen.punched.lock().iter() {
            older.remove(hole.clone());
        }
        chunk.dirty.fill_below(&older, room);
        chunk.dirty_seq = frozen.seq;
        chunk.frozen = None;
        let freed = before - chunk.dirty.bytes();
        if chunk.dirty.is_empty() {
            self.chunks.remove(&index);
        }
        freed
    }

    /// Ends a frozen chunk whose extents the index has.
    pub(crate) fn acknowledge(&mut self, index: u64, frozen: &Arc<Frozen>) {
        if let Some(chunk) = self.chunks.get_mut(&index)
            && chunk.is_frozen_as(frozen)
        {
            chunk.frozen = None;
            if chunk.dirty.is_empty() {
                self.chunks.remove(&index);
            }
        }
    }

    /// Removes a range from the chunks numbered `chunks`; returns the bytes that became free.
    pub(crate) fn punch(&mut self, hole: &Range<u64>, chunks: RangeInclusive<u64>) -> u64 {
        let mut freed = 0;
        let mut emptied = Vec::new();
        for (&index, chunk) in self.chunks.range_mut(chunks) {
            let before = chunk.dirty.bytes();
            chunk.dirty.remove(hole.clone());
            freed += before - chunk.dirty.bytes();
            match &chunk.frozen {
                Some(frozen) => frozen.punched.lock().push(hole.clone()),
                None if chunk.dirty.is_empty() => emptied.push(index),
                None => {}
            }
        }
        for index in emptied {
            self.chunks.remove(&index);
        }
        freed
    }
}
