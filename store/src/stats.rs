//! Counters of a store since it was opened, and its present state.
//!
//! Counters are relaxed: each is exact, but numbers that are read together need not be consistent.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use shale_codec::FrameKind;

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

    /// Its value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Frames encoded for one purpose.
#[derive(Debug, Default)]
pub struct Encoded {
    /// Frames encoded.
    pub frames: Counter,
    /// Bytes before encoding.
    pub raw: Counter,
    /// Bytes after encoding.
    pub stored: Counter,
    /// Nanoseconds spent encoding.
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

/// All counters of a store.
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
    /// Bytes appended to packs.
    pub appended: Counter,
    /// Rounds of syncing packs.
    pub pack_syncs: Counter,
    /// Reads from packs.
    pub pack_reads: Counter,
    /// Bytes read from packs.
    pub pack_read: Counter,
    /// Look-ups of decoded frames that the cache answered.
    pub cache_hits: Counter,
    /// Look-ups of decoded frames that the cache did not answer.
    pub cache_misses: Counter,
    /// Writes that waited for memory.
    pub waits: Counter,
    /// Nanoseconds that writes waited for memory.
    pub wait_nanos: Counter,
    /// Packs rewritten because little of them was live.
    pub packs_rewritten: Counter,
    /// Live bytes copied out of rewritten packs.
    pub bytes_rewritten: Counter,
    /// Packs deleted.
    pub packs_deleted: Counter,
    /// Bytes of deleted packs.
    pub bytes_deleted: Counter,
    /// Passes over the packs that failed.
    pub collections_failed: Counter,
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

/// The present state of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Bytes in memory that are not committed yet.
    pub buffer_used: u64,
    /// Bytes of unwritten data at which writers wait.
    pub buffer_limit: u64,
    /// Bytes of decoded frames in memory.
    pub cache_used: u64,
    /// Most bytes of decoded frames that are kept.
    pub cache_limit: u64,
    /// Chunks that wait to be encoded.
    pub encode_queue: u64,
    /// Frames that wait to be decoded ahead of readers.
    pub decode_queue: u64,
    /// Files with data that is not committed.
    pub dirty_files: u64,
    /// Files that are open or being worked on.
    pub files: u64,
    /// Index transactions of this session.
    pub commits: u64,
    /// Syncs of the index's journal in this session.
    pub journal_syncs: u64,
}
