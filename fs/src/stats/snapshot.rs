//! The statistics of a mount at one moment: the list of all of them, and how they are collected.
//!
//! Counters begin at 0 with the mount. A reader that wants rates takes two snapshots.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use shale_backing::Space;
use shale_index::{Ino, ROOT};
use shale_store::{Gauges, GcState, Presence, StoreLocation, Usage};

use crate::counters::{BUCKETS, Counters, Op};
use crate::stats::table::{Kind, Metric, Number, Row, stats};
use crate::{Error, Fs};

/// Most slow operations, and most busy files, in the lists.
const LISTED: usize = 16;
/// Most files whose traffic is reported.
const FOLLOWED: usize = 128;
/// Most letters of a path: all paths together must fit into an attribute.
const LETTERS: usize = 200;

stats! {
    /// A mount at one moment.
    pub struct MountStats of now: &Now<'_> {
        /// Version of the daemon.
        version: String = env!("CARGO_PKG_VERSION").to_owned();
        /// Directory of the store.
        store: String = now.fs.location.store.clone();
        /// Where it is mounted.
        mountpoint: String = now.fs.location.mountpoint.clone();
        /// Process id of the daemon.
        pid: u32 = std::process::id();
        /// Seconds since the epoch.
        time: f64 = seconds_since_epoch();
        /// Seconds since the mount began.
        uptime: f64 = now.counters.uptime().as_secs_f64();
        /// Bytes that programs read.
        read: u64 = now.counters.read.get() => Counter "shale_read_bytes_total";
        /// Bytes that programs wrote.
        written: u64 = now.counters.written.get() => Counter "shale_written_bytes_total";
        /// Operations. The attribute leaves out those that never happened.
        operations: Vec<OperationStats> = operations(now.counters);
        /// Operations that failed, by errno. The attribute leaves out those that never happened.
        errors: Vec<Count> = now.counters.errors().map(count).collect();
        /// Operations that were refused in normal use, such as a look-up of a missing name, by
        /// errno. The attribute leaves out those that never happened.
        refusals: Vec<Count> = now.counters.refusals().map(count).collect();
        /// Data encoded as it was written.
        encoded: EncodeStats = EncodeStats::of(&now.store.written);
        /// Data encoded while settling, trials included.
        settled: EncodeStats = EncodeStats::of(&now.store.settled);
        /// Maps of files that were encoded.
        maps: EncodeStats = EncodeStats::of(&now.store.maps);
        /// Appends to packs.
        appends: u64 = now.store.appends.get() => Counter "shale_pack_appends_total";
        /// Bytes appended to packs.
        appended: u64 = now.store.appended.get() => Counter "shale_pack_appended_bytes_total";
        /// Rounds of syncing packs.
        pack_syncs: u64 = now.store.pack_syncs.get() => Counter "shale_pack_syncs_total";
        /// Reads from packs.
        pack_reads: u64 = now.store.pack_reads.get() => Counter "shale_pack_reads_total";
        /// Bytes read from packs.
        pack_read: u64 = now.store.pack_read.get() => Counter "shale_pack_read_bytes_total";
        /// Look-ups of decoded frames that the cache answered.
        cache_hits: u64 = now.store.cache_hits.get() => Counter "shale_cache_hits_total";
        /// Look-ups of decoded frames that the cache did not answer.
        cache_misses: u64 = now.store.cache_misses.get() => Counter "shale_cache_misses_total";
        /// Bytes of decoded frames in memory.
        cache_used: u64 = now.gauges.cache_used => Gauge "shale_cache_bytes";
        /// Most bytes of decoded frames that are kept.
        cache_limit: u64 = now.gauges.cache_limit => Gauge "shale_cache_limit_bytes";
        /// Bytes of written data in memory that are not committed.
        buffer_used: u64 = now.gauges.buffer_used => Gauge "shale_buffer_bytes";
        /// Bytes of written data at which writers wait.
        buffer_limit: u64 = now.gauges.buffer_limit => Gauge "shale_buffer_limit_bytes";
        /// Writes that waited for memory.
        waits: u64 = now.store.waits.get() => Counter "shale_buffer_waits_total";
        /// Seconds that writes waited for memory.
        wait_seconds: f64 = seconds(now.store.wait_nanos.get())
            => Counter "shale_buffer_wait_seconds_total";
        /// Chunks that wait to be encoded.
        encode_queue: u64 = now.gauges.encode_queue => Gauge "shale_encode_queue_chunks";
        /// Frames that wait to be decoded ahead of readers.
        decode_queue: u64 = now.gauges.decode_queue => Gauge "shale_decode_queue_frames";
        /// Files with data that is not committed.
        dirty_files: u64 = now.gauges.dirty_files => Gauge "shale_dirty_files";
        /// Files that are open or being worked on.
        files_in_use: u64 = now.gauges.files => Gauge "shale_files_in_use";
        /// Files with data that could not be read since the mount began.
        damaged_files: u64 = now.fs.store.damaged_files() => Gauge "shale_damaged_files";
        /// Transactions of the index.
        commits: u64 = now.gauges.commits => Counter "shale_index_commits_total";
        /// Syncs of the index's journal; one sync serves every waiting transaction.
        journal_syncs: u64 = now.gauges.journal_syncs => Counter "shale_journal_syncs_total";
        /// Settling.
        settle: SettleStats = SettleStats::of(now);
        /// Garbage collection.
        gc: GcStats = GcStats::of(now);
        /// Bytes of all files as programs see them.
        raw: u64 = now.totals.raw => Gauge "shale_store_raw_bytes";
        /// Bytes that all files take in the store.
        stored: u64 = now.totals.stored => Gauge "shale_store_stored_bytes";
        /// Bytes of files that are stored; the rest is still in memory.
        stored_raw: u64 = now.totals.stored_raw => Gauge "shale_store_stored_raw_bytes";
        /// Files in the store.
        files: u64 = now.totals.files => Gauge "shale_store_files";
        /// Directories in the store.
        #[serde(rename = "directories")]
        dirs: u64 = now.totals.dirs => Gauge "shale_store_directories";
        /// Size of the device that holds the store.
        device_total: u64 = now.space.map_or(0, |space| space.total)
            => Gauge "shale_device_size_bytes";
        /// Free bytes of the device that the daemon may use.
        device_free: u64 = now.space.map_or(0, |space| space.available)
            => Gauge "shale_device_free_bytes";
        /// Where the directory of the store has gone; none while it is where it was found.
        displaced: Option<Displaced> = Displaced::of(now.fs.store.presence());
        /// The slowest operations of the last minute, the slowest first.
        slowest: Vec<SlowOperation> = Vec::new();
        /// The files with the most traffic lately, the busiest first.
        busiest: Vec<BusyFile> = Vec::new();
        /// The same for more files, without names.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        traffic: Vec<Traffic> = Vec::new();
    }
}

stats! {
    /// Frames encoded in one pass. Each metric has a sample per pass: write, settle, or map (of the
    /// extents of a file).
    #[derive(Copy)]
    pub struct EncodeStats of counted: &shale_store::Encoded {
        /// Frames encoded, by pass: write, settle, or map (of the extents of a file).
        frames: u64 = counted.frames.get() => Counter "shale_encoded_frames_total";
        /// Bytes before encoding, by pass.
        raw: u64 = counted.raw.get() => Counter "shale_encoded_raw_bytes_total";
        /// Bytes after encoding, by pass.
        stored: u64 = counted.stored.get() => Counter "shale_encoded_stored_bytes_total";
        /// Seconds spent encoding, all threads together, by pass.
        seconds: f64 = seconds(counted.nanos.get()) => Counter "shale_encode_seconds_total";
    }
}

stats! {
    /// Settling.
    pub struct SettleStats of now: &Now<'_> {
        /// Files settled.
        files: u64 = now.counters.settle.files.get();
        /// Files that are already as small as settling would make them.
        compact: u64 = now.counters.settle.compact.get();
        /// Files that do not compress.
        incompressible: u64 = now.counters.settle.incompressible.get();
        /// Attempts that failed, or that a write overtook.
        failed: u64 = now.counters.settle.failed.get();
        /// Raw bytes of the files that were settled.
        raw: u64 = now.counters.settle.raw.get() => Counter "shale_settled_raw_bytes_total";
        /// Stored bytes of the files that were settled, before settling.
        before: u64 = now.counters.settle.before.get()
            => Counter "shale_settled_before_bytes_total";
        /// Stored bytes of the files that were settled, after settling.
        after: u64 = now.counters.settle.after.get() => Counter "shale_settled_after_bytes_total";
        /// Files queued by a request to settle them.
        queue: u64 = now.settle_queue => Gauge "shale_settle_queue_files";
        /// 1 while a file is being settled.
        running: bool = now.settling.is_some() => Gauge "shale_settle_running";
        /// The file that is being settled.
        current: Option<String> = None;
    }
}

stats! {
    /// Garbage collection.
    #[derive(Copy)]
    pub struct GcStats of now: &Now<'_> {
        /// 1 while packs are being rewritten.
        running: bool = now.fs.store.gc_state() == GcState::Running
            => Gauge "shale_gc_running";
        /// Stored bytes that nothing refers to, without packs that still grow.
        garbage: u64 = now.fs.store.garbage() => Gauge "shale_gc_garbage_bytes";
        /// Packs rewritten because little of them was live.
        rewritten: u64 = now.store.packs_rewritten.get()
            => Counter "shale_gc_rewritten_packs_total";
        /// Live bytes copied out of rewritten packs.
        moved: u64 = now.store.bytes_rewritten.get() => Counter "shale_gc_moved_bytes_total";
        /// Packs deleted.
        deleted: u64 = now.store.packs_deleted.get() => Counter "shale_gc_deleted_packs_total";
        /// Bytes of deleted packs; subtract the moved bytes for what the device got back.
        freed: u64 = now.store.bytes_deleted.get() => Counter "shale_gc_freed_bytes_total";
        /// Passes over the packs that failed.
        failed: u64 = now.store.collections_failed.get() => Counter "shale_gc_failed_total";
    }
}

/// Where the numbers of one moment come from.
pub(crate) struct Now<'a> {
    fs: &'a Fs,
    counters: &'a Counters,
    store: &'a shale_store::Counters,
    gauges: Gauges,
    totals: Usage,
    /// None when the device does not answer.
    space: Option<Space>,
    settling: Option<u64>,
    settle_queue: u64,
}

/// A store that is no longer where it was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Displaced {
    /// It was moved to this path. The mount keeps using it.
    Moved(String),
    /// Its file system was unmounted, or another one was mounted over it. The mount keeps using it.
    OutOfSight,
    /// It, or a part of it, was removed. Nothing can become durable any more.
    Removed,
}

impl Displaced {
    fn of(presence: Presence) -> Option<Self> {
        match presence {
            Presence::There(StoreLocation::AsFound) => None,
            Presence::There(StoreLocation::At(path)) => {
                Some(Self::Moved(path.display().to_string()))
            }
            Presence::There(StoreLocation::OutOfSight) => Some(Self::OutOfSight),
            Presence::Removed => Some(Self::Removed),
        }
    }
}

/// The number of times that an error happened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Count {
    /// Name of the errno.
    pub name: String,
    /// How often it happened.
    pub count: u64,
}

/// One kind of operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OperationStats {
    /// Its name.
    pub name: String,
    /// How often it happened.
    pub count: u64,
    /// Seconds in all.
    pub seconds: f64,
    /// How many took up to each of [`MountStats::bounds`], and longer.
    pub buckets: Vec<u64>,
}

/// A slow operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SlowOperation {
    /// Name of the operation.
    pub operation: String,
    /// Seconds it took.
    pub seconds: f64,
    /// Seconds since it began.
    pub ago: f64,
    /// The file or directory.
    pub path: String,
}

/// A busy file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BusyFile {
    /// The file.
    pub path: String,
    /// Its traffic.
    #[serde(flatten)]
    pub traffic: Traffic,
}

/// The traffic of a file since it became busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Traffic {
    /// Its inode.
    pub inode: u64,
    /// Bytes that programs read.
    pub read: u64,
    /// Bytes that programs wrote.
    pub written: u64,
    /// Seconds since the file became busy.
    pub age: f64,
}

impl MountStats {
    /// Upper bounds of [`OperationStats::buckets`], in seconds.
    pub fn bounds() -> impl Iterator<Item = f64> {
        BUCKETS.iter().map(|&micros| micros as f64 / 1e6)
    }
}

fn count((name, count): (&str, u64)) -> Count {
    let name = name.to_owned();
    Count { name, count }
}

fn operations(counters: &Counters) -> Vec<OperationStats> {
    let operation = |&op: &Op| {
        let times = counters.times(op);
        let buckets: Vec<u64> = times.buckets.iter().map(|bucket| bucket.get()).collect();
        OperationStats {
            name: op.name().to_owned(),
            count: buckets.iter().sum(),
            seconds: seconds(times.nanos.get()),
            buckets,
        }
    };
    Op::ALL.iter().map(operation).collect()
}

fn seconds_since_epoch() -> f64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_secs_f64()
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// The end of a long path.
fn shorten(path: String) -> String {
    match path.chars().count().checked_sub(LETTERS) {
        Some(more) if more > 0 => std::iter::once('…')
            .chain(path.chars().skip(more))
            .collect(),
        _ => path,
    }
}

impl Fs {
    /// The statistics of this moment as JSON, with names of files.
    pub(crate) fn snapshot_with_names(&self) -> Result<Vec<u8>, Error> {
        let mut stats = self.snapshot()?;
        // Read together, so that the files add up to the totals.
        let busiest = self.store.busiest(FOLLOWED);
        stats.read = self.counters.read.get();
        stats.written = self.counters.written.get();
        stats.uptime = self.counters.uptime().as_secs_f64();
        stats.operations.retain(|operation| operation.count > 0);
        stats.errors.retain(|error| error.count > 0);
        stats.refusals.retain(|refusal| refusal.count > 0);
        let (current, _) = self.settling.now();
        stats.settle.current = current.map(|ino| self.path_of(ino));
        for slow in self.counters.slowest.list().into_iter().take(LISTED) {
            stats.slowest.push(SlowOperation {
                operation: slow.op.name().to_owned(),
                seconds: slow.time.as_secs_f64(),
                ago: slow.begun.elapsed().as_secs_f64(),
                path: self.path_of(slow.ino),
            });
        }
        for (number, busy) in busiest.into_iter().enumerate() {
            let traffic = Traffic {
                inode: busy.ino,
                read: busy.read,
                written: busy.written,
                age: busy.age.as_secs_f64(),
            };
            if number < LISTED {
                let path = self.path_of(busy.ino);
                stats.busiest.push(BusyFile { path, traffic });
            }
            stats.traffic.push(traffic);
        }
        Ok(serde_json::to_vec(&stats).unwrap_or_default())
    }

    /// The path of an inode, short enough for a line.
    fn path_of(&self, ino: Ino) -> String {
        shorten(self.path_below(ino))
    }

    /// The path of an inode below the root of the mount.
    pub(crate) fn path_below(&self, ino: Ino) -> String {
        let path = self.store.path_of(ino);
        match path.strip_prefix('/') {
            Some(below) if !below.is_empty() => below.to_owned(),
            _ => path,
        }
    }

    /// The statistics without names of files, with zeros for what has not happened: a scraper that
    /// looks for an increase would miss the first one otherwise.
    ///
    /// # Errors
    /// When the store fails.
    pub(crate) fn snapshot(&self) -> Result<MountStats, Error> {
        let (settling, settle_queue) = self.settling.now();
        Ok(MountStats::of(&Now {
            fs: self,
            counters: &self.counters,
            store: self.store.counters(),
            gauges: self.store.gauges(),
            totals: self.store.usage_below(ROOT)?,
            // A device that fails does not keep the mount from answering.
            space: self.store.space().ok(),
            settling,
            settle_queue,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::file_system;

    #[test]
    fn the_first_error_is_an_increase() {
        let dir = tempfile::tempdir().unwrap();
        let fs = file_system(dir.path());
        let snapshot = fs.snapshot().unwrap();
        assert_eq!(snapshot.operations.len(), Op::ALL.len());
        for name in ["EIO", "ENOSPC"] {
            assert!(snapshot.errors.contains(&count((name, 0))), "{name}");
        }
        assert!(snapshot.refusals.contains(&count(("ENOENT", 0))));
        let stats: MountStats = serde_json::from_slice(&fs.snapshot_with_names().unwrap()).unwrap();
        assert!(stats.operations.is_empty() && stats.errors.is_empty());
        assert!(stats.refusals.is_empty());
    }
}
