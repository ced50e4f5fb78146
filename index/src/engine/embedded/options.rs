//! Options of the embedded engine, and the result of opening it.

use crate::kv::Version;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
/// Bytes of a commit at most.
pub(crate) const MAX_COMMIT: usize = 64 * MIB;

/// How to open the embedded engine.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes of memory for tables and caches.
    pub memory: usize,
    /// Change nothing. The whole index is read into memory.
    pub read_only: bool,
    /// For tests.
    #[doc(hidden)]
    pub tuning: Tuning,
}

/// Sizes and behaviour for tests.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tuning {
    /// As `memory` implies.
    #[default]
    Normal,
    /// Everything happens after a few commits.
    Tiny,
    /// Like `Tiny`, without a background thread.
    TinyQuiet,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            memory: 64 * MIB,
            read_only: false,
            tuning: Tuning::Normal,
        }
    }
}

/// Sizes of the journal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JournalSizes {
    /// A segment is full at this many bytes.
    pub(crate) segment: u64,
    /// Space is reserved in steps of this.
    pub(crate) step: u64,
    /// Space that the spare segment reserves.
    pub(crate) spare: u64,
    /// The largest commit.
    pub(crate) commit: usize,
    /// Commits that may wait in memory for a sync that keeps failing, in bytes.
    pub(crate) pending: usize,
}

/// The sizes that follow from the options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) journal: JournalSizes,
    /// The memtable is frozen at this size.
    pub(crate) memtable: usize,
    /// A sync is begun when this many bytes wait for one.
    pub(crate) unsynced: usize,
    /// Journal bytes after which a snapshot is written, unless the last one was larger.
    pub(crate) snapshot: u64,
    /// Journal bytes after which a clean close writes a snapshot of a small index.
    pub(crate) close: u64,
    /// Segments after which a snapshot is written, however short they are.
    pub(crate) segments: usize,
    /// sled's cache.
    pub(crate) sled: u64,
    /// Bytes written to sled after which it is opened again, which shortens the log that it would
    /// have to read after a crash.
    pub(crate) renew: u64,
    /// Cache of values.
    pub(crate) values: usize,
    /// Space that must be free on the device before sled is written.
    pub(crate) free: u64,
}

impl Options {
    pub(crate) fn limits(&self) -> Limits {
        if self.tuning != Tuning::Normal {
            let journal = JournalSizes {
                segment: 2048,
                step: 512,
                spare: 1024,
                commit: 64 * KIB,
                pending: 8 * KIB,
            };
            return Limits {
                journal,
                memtable: 1024,
                unsynced: 2048,
                snapshot: 6000,
                close: 1000,
                segments: 1000,
                sled: MIB as u64,
                renew: 3000,
                values: 4096,
                free: 0,
            };
        }
        let journal = JournalSizes {
            segment: 16 * MIB as u64,
            step: MIB as u64,
            spare: 2 * MIB as u64,
            commit: MAX_COMMIT,
            pending: 64 * MIB,
        };
        Limits {
            journal,
            memtable: (self.memory / 16).clamp(64 * KIB, 8 * MIB),
            unsynced: 2 * MIB,
            snapshot: 64 * MIB as u64,
            close: 4 * MIB as u64,
            segments: 256,
            sled: (self.memory / 16).max(MIB) as u64,
            renew: 128 * MIB as u64,
            values: self.memory / 8,
            free: 64 * MIB as u64,
        }
    }
}

/// Keys that the last commits of a journal have changed, commit by commit, the newest last.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Recent(pub std::collections::VecDeque<Vec<Vec<u8>>>);

impl std::fmt::Debug for Recent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} commits", self.0.len())
    }
}

/// The result of opening the engine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// The newest commit found.
    pub version: Version,
    /// Commits read from the journal.
    pub records: u64,
    /// Bytes at the end of the journal that were not a complete record and were dropped.
    pub torn_bytes: u64,
    /// Why the base was rebuilt from snapshot and journal, if it was.
    pub rebuilt: Option<String>,
    /// Damage in a part of the journal that was not needed; a new snapshot replaces it.
    pub damaged_history: Option<String>,
    /// Keys removed because the process that held their lease is gone.
    pub leases_ended: usize,
    /// The last session shut down cleanly, and no commit has been made since.
    pub closed: bool,
    /// Its last changes, if it did not: as many of its commits as are worth examining.
    pub recent: Recent,
}
