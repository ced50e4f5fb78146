//! What a store has done since it was opened, and what it is doing.
//!
//! Counters are relaxed: each is right by itself, and numbers that are read together need not
//! agree with each other.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use shale_codec::FrameKind;

use crate::Store;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// Adds one.
    pub fn one(&self) {
        self.add(1);
    }

    /// Adds a time, in nanoseconds.
    pub fn time(&self, time: Duration) {
        self.add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    /// What it has come to.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Frames that were made for one purpose.
#[derive(Debug, Default)]
pub struct Encoded {
    /// How many.
    pub frames: Counter,
    /// Bytes before.
    pub raw: Counter,
    /// Bytes after.
    pub stored: Counter,
    /// Nanoseconds it took.
    pub nanos: Counter,
}

impl Encoded {
    pub(crate) fn note(&self, raw: usize, stored: usize, begun: Instant) {
        self.frames.one();
        self.raw.add(raw as u64);
        self.stored.add(stored as u64);
        self.nanos.time(begun.elapsed());
    }
}

/// Everything that a store counts.
#[derive(Debug, Default)]
pub struct Counters {
    /// Data as it was written.
    pub written: Encoded,
    /// Data that was settled, trials included.
    pub settled: Encoded,
    /// Maps of files.
    pub maps: Encoded,
    /// Appends to packs.
    pub appends: Counter,
    /// Bytes that they had.
    pub appended: Counter,
    /// Rounds of syncing packs.
    pub pack_syncs: Counter,
    /// Reads from packs.
    pub pack_reads: Counter,
    /// Bytes that they had.
    pub pack_read: Counter,
    /// Decoded frames that were found in memory.
    pub cache_hits: Counter,
    /// Decoded frames that were not.
    pub cache_misses: Counter,
    /// Writers that had to wait for memory.
    pub waits: Counter,
    /// Nanoseconds that they waited.
    pub wait_nanos: Counter,
    /// Packs that were rewritten because little of them was alive.
    pub packs_rewritten: Counter,
    /// Live bytes of them.
    pub bytes_rewritten: Counter,
    /// Packs that were deleted.
    pub packs_deleted: Counter,
    /// Passes over packs that failed.
    pub collections_failed: Counter,
    /// Bytes of them.
    pub bytes_deleted: Counter,
}

impl Counters {
    pub(crate) fn encoded(&self, kind: FrameKind) -> &Encoded {
        match kind {
            FrameKind::Data => &self.written,
            FrameKind::Tile | FrameKind::Tiles | FrameKind::Gather => &self.settled,
            FrameKind::Map | FrameKind::Catalog => &self.maps,
        }
    }
}

/// What a store is doing now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Bytes in memory that are not committed yet.
    pub buffer_used: u64,
    /// How many there may be.
    pub buffer_limit: u64,
    /// Bytes of decoded frames in memory.
    pub cache_used: u64,
    /// How many there may be.
    pub cache_limit: u64,
    /// Chunks that wait to be encoded.
    pub encode_queue: u64,
    /// Frames that wait to be decoded ahead of readers.
    pub decode_queue: u64,
    /// Files with something to be written.
    pub dirty_files: u64,
    /// Files in use.
    pub files: u64,
    /// Index transactions of this session.
    pub commits: u64,
    /// Syncs of the index's journal in this session.
    pub journal_syncs: u64,
}

impl Store {
    /// What it has done since it was opened.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.inner.frames.packs.counters
    }

    /// What it is doing now.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        let inner = &*self.inner;
        let kv = inner.namespace.kv();
        let (cache_used, cache_limit) = inner.frames.cache.fill();
        // One lock at a time: in one expression the first would be held until its end.
        let dirty_files = inner.dirty.lock().len() as u64;
        let files = inner.files_in_use();
        Gauges {
            buffer_used: inner.budget.used(),
            buffer_limit: inner.budget.limit(),
            cache_used,
            cache_limit,
            encode_queue: inner.waiting_jobs(),
            decode_queue: inner.ahead.waiting(),
            dirty_files,
            files,
            commits: kv.version().saturating_sub(inner.first_version),
            journal_syncs: kv.syncs(),
        }
    }
}
