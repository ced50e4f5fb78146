//! One file in memory: what is known of it and what is not written yet.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Instant;

use shale_codec::Effort;
use shale_index::extent::Extent;
use shale_index::schema::{Inode, Time};

use crate::activity::Activity;
use crate::advice::Advice;
use crate::ahead::Position;
use crate::lost::LostRanges;
use crate::map::FileMap;
use crate::pins::Pin;
use crate::segs::Segs;
use crate::sync::{Condvar, Mutex};

/// A regular file that is open or has unwritten data. Everybody who works on the file shares it.
#[derive(Debug)]
pub struct File {
    pub(crate) ino: u64,
    /// Changes only under the lock of the state, and while no chunk is in memory.
    chunk_shift: AtomicU8,
    /// How what is written from now on is encoded; as the store does by itself when not told.
    effort: Mutex<Option<Effort>>,
    pub(crate) state: Mutex<FileState>,
    /// Signalled whenever a chunk leaves the pipeline.
    pub(crate) moved: Condvar,
    pub(crate) advice: Mutex<Option<Arc<dyn Advice>>>,
    pub(crate) position: Mutex<Position>,
    pub(crate) activity: Arc<Activity>,
    /// Somebody has asked for room before a write to it.
    pub(crate) asked: AtomicBool,
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
    pub(crate) map: Option<FileMap>,
    pub(crate) chunks: BTreeMap<u64, Chunk>,
    /// Chunks whose frames are in packs and wait for a commit.
    pub(crate) ready: Vec<Flushed>,
    /// Counts writes, so that a sync knows what it has to wait for.
    pub(crate) write_seq: u64,
    /// Why the last pack with data of this file could not be synced.
    pub(crate) lost_errno: i32,
    pub(crate) dirty_since: Option<Instant>,
    pub(crate) failure: Failure,
    /// The log has said that something cannot be stored.
    pub(crate) warned: bool,
    pub(crate) lost: LostRanges,
}

/// The last error of writing behind. Each handle reports it once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    /// Number of the failure; 0 is none.
    pub seq: u64,
    /// Its errno.
    pub errno: i32,
}

/// Unwritten bytes of one chunk.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    pub(crate) dirty: Segs,
    /// The oldest write among the dirty bytes.
    pub(crate) dirty_seq: u64,
    /// Older bytes on their way to a pack and the index.
    pub(crate) frozen: Option<Arc<Frozen>>,
}

/// Bytes of a chunk that are being written and do not change any more.
#[derive(Debug)]
pub(crate) struct Frozen {
    pub(crate) segs: Segs,
    pub(crate) seq: u64,
    /// Ranges cut out of the file after the bytes were frozen.
    pub(crate) cut: Mutex<Vec<(u64, u64)>>,
}

/// A chunk whose frames are in packs.
#[derive(Debug)]
pub(crate) struct Flushed {
    pub(crate) index: u64,
    pub(crate) frozen: Arc<Frozen>,
    pub(crate) extents: Vec<Extent>,
    /// Keep the packs of the frames until they are committed.
    pub(crate) pins: Vec<Pin>,
}

impl Flushed {
    /// The extents without what has been cut out of the file meanwhile.
    pub(crate) fn surviving(&self) -> Vec<Extent> {
        let mut extents = self.extents.clone();
        for &(start, end) in self.frozen.cut.lock().iter() {
            extents = extents
                .iter()
                .flat_map(|e| [e.slice(0, start), e.slice(end, u64::MAX)])
                .flatten()
                .collect();
        }
        extents
    }

    /// Whether one of the packs holds a frame of it.
    pub(crate) fn is_in(&self, packs: &[u64]) -> bool {
        self.extents
            .iter()
            .filter_map(|extent| extent.place.pack())
            .any(|pack| packs.contains(&pack))
    }
}

impl File {
    pub(crate) fn new(inode: &Inode, activity: Arc<Activity>) -> Self {
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
                lost_errno: libc::EIO,
                dirty_since: None,
                failure: Failure::default(),
                warned: false,
                lost: LostRanges::default(),
            }),
            moved: Condvar::new(),
            advice: Mutex::new(None),
            position: Mutex::default(),
            activity,
            asked: AtomicBool::new(false),
        }
    }

    /// Tells what is known of the contents, for what is written from now on.
    pub fn set_advice(&self, advice: Option<Arc<dyn Advice>>) {
        *self.advice.lock() = advice;
    }

    /// Counts bytes that a program has read.
    pub fn note_read(&self, bytes: usize) {
        self.activity.note_read(bytes as u64);
    }

    /// Counts bytes that a program has written.
    pub fn note_written(&self, bytes: usize) {
        self.activity.note_written(bytes as u64);
    }

    /// Tells how what is written from now on is encoded.
    pub fn set_effort(&self, effort: Effort) {
        *self.effort.lock() = Some(effort);
    }

    pub(crate) fn effort(&self) -> Option<Effort> {
        *self.effort.lock()
    }

    /// Its inode number.
    #[must_use]
    pub fn ino(&self) -> u64 {
        self.ino
    }

    /// Its size, with everything that has been written.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.state.lock().size
    }

    /// The last error of writing behind.
    #[must_use]
    pub fn failure(&self) -> Failure {
        self.state.lock().failure
    }

    /// Ranges that were accepted and could not be stored, in order. Syncing fails until they have
    /// been written again or cut off.
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

    pub(crate) fn chunk_range(&self, index: u64) -> (u64, u64) {
        let shift = self.chunk_shift();
        (index << shift, (index + 1) << shift)
    }
}

impl FileState {
    /// Nothing in memory that the index does not have.
    pub(crate) fn is_clean(&self) -> bool {
        self.chunks.is_empty() && self.ready.is_empty() && !self.has_news() && self.lost.is_empty()
    }

    /// Whether something that was written up to a time has not been committed.
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

    /// Bytes in memory that are not committed.
    pub(crate) fn unwritten(&self) -> u64 {
        let frozen = |chunk: &Chunk| chunk.frozen.as_ref().map_or(0, |f| f.segs.bytes());
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

    pub(crate) fn fail(&mut self, errno: i32) {
        self.failure = Failure {
            seq: self.failure.seq + 1,
            errno,
        };
    }

    /// Takes the dirty bytes of a chunk out of further writes' way. `None` when there are none or
    /// older ones are still on their way.
    pub(crate) fn freeze(&mut self, index: u64) -> Option<Arc<Frozen>> {
        let chunk = self.chunks.get_mut(&index)?;
        if chunk.dirty.is_empty() || chunk.frozen.is_some() {
            return None;
        }
        let frozen = Arc::new(Frozen {
            segs: std::mem::take(&mut chunk.dirty),
            seq: chunk.dirty_seq,
            cut: Mutex::default(),
        });
        chunk.frozen = Some(Arc::clone(&frozen));
        Some(frozen)
    }

    /// Makes frozen bytes dirty again, below what was written since.
    pub(crate) fn thaw(&mut self, index: u64, frozen: &Arc<Frozen>, room: usize) -> u64 {
        let Some(chunk) = self.chunks.get_mut(&index) else {
            return 0;
        };
        if !chunk
            .frozen
            .as_ref()
            .is_some_and(|f| Arc::ptr_eq(f, frozen))
        {
            return 0;
        }
        let before = frozen.segs.bytes() + chunk.dirty.bytes();
        let mut older = Segs::default();
        for (offset, piece) in frozen.segs.iter() {
            older.write(offset, piece, room);
        }
        for &(start, end) in frozen.cut.lock().iter() {
            older.remove(start, end);
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
    pub(crate) fn settle(&mut self, index: u64, frozen: &Arc<Frozen>) {
        if let Some(chunk) = self.chunks.get_mut(&index)
            && chunk
                .frozen
                .as_ref()
                .is_some_and(|f| Arc::ptr_eq(f, frozen))
        {
            chunk.frozen = None;
            if chunk.dirty.is_empty() {
                self.chunks.remove(&index);
            }
        }
    }

    /// Cuts a range out of everything in memory; returns the bytes that became free.
    pub(crate) fn cut(&mut self, start: u64, end: u64, chunk_of: impl Fn(u64) -> u64) -> u64 {
        let mut freed = 0;
        let first = chunk_of(start);
        let last = chunk_of(end - 1);
        let mut emptied = Vec::new();
        for (&index, chunk) in self.chunks.range_mut(first..=last) {
            let before = chunk.dirty.bytes();
            chunk.dirty.remove(start, end);
            freed += before - chunk.dirty.bytes();
            match &chunk.frozen {
                Some(frozen) => frozen.cut.lock().push((start, end)),
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
