//! Everything a mount can tell of itself at one moment, as numbers.
//!
//! Counters begin at 0 with the mount; rates are the business of whoever asks twice.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use shale_store::index::ROOT;
use shale_store::{Collecting, Place, Presence};

use crate::counters::{BUCKETS, Op};
use crate::{Error, Fs};

/// Slow operations and busy files that are listed at most.
const LISTED: usize = 16;
/// Files of which it is told what programs did with them.
const FOLLOWED: usize = 128;
/// Letters of a path that are shown: all of them must fit into an attribute.
const LETTERS: usize = 200;

/// A mount at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Live {
    /// Version of the daemon.
    pub version: String,
    /// Directory of the store.
    pub store: String,
    /// Where it is mounted.
    pub mountpoint: String,
    /// Process id of the daemon.
    pub pid: u32,
    /// Seconds since the epoch.
    pub time: f64,
    /// Seconds since the mount began.
    pub uptime: f64,
    /// Bytes that programs have read.
    pub read: u64,
    /// Bytes that programs have written.
    pub written: u64,
    /// Operations; in the attribute those that have happened at least once.
    pub operations: Vec<Operation>,
    /// Operations that failed, by errno; in the attribute those that have happened.
    pub errors: Vec<Count>,
    /// Operations that were refused in the course of things, as of names that are not there, by
    /// errno; in the attribute those that have happened.
    pub refusals: Vec<Count>,
    /// Data encoded as it was written.
    pub encoded: Encoded,
    /// Data encoded while settling, trials included.
    pub settled: Encoded,
    /// Maps of files that were encoded.
    pub maps: Encoded,
    /// Appends to packs, their bytes, rounds of syncs.
    pub appends: u64,
    /// Bytes appended to packs.
    pub appended: u64,
    /// Rounds of syncing packs.
    pub pack_syncs: u64,
    /// Reads from packs.
    pub pack_reads: u64,
    /// Bytes read from packs.
    pub pack_read: u64,
    /// Decoded frames that were found in memory.
    pub cache_hits: u64,
    /// Decoded frames that were not.
    pub cache_misses: u64,
    /// Bytes of decoded frames in memory.
    pub cache_used: u64,
    /// How many there may be.
    pub cache_limit: u64,
    /// Bytes in memory that are not committed.
    pub buffer_used: u64,
    /// How many there may be.
    pub buffer_limit: u64,
    /// Writers that had to wait for memory.
    pub waits: u64,
    /// Seconds they waited.
    pub wait_seconds: f64,
    /// Chunks that wait to be encoded.
    pub encode_queue: u64,
    /// Frames that wait to be decoded ahead.
    pub decode_queue: u64,
    /// Files with something to be written.
    pub dirty_files: u64,
    /// Files in use.
    pub files_in_use: u64,
    /// Files in which something could not be read since the mount began.
    pub damaged_files: u64,
    /// Index transactions.
    pub commits: u64,
    /// Syncs of the journal.
    pub journal_syncs: u64,
    /// What settling does.
    pub settle: Settle,
    /// What collecting garbage does.
    pub gc: Gc,
    /// Bytes of all files as programs see them.
    pub raw: u64,
    /// Bytes that they take in the store.
    pub stored: u64,
    /// Bytes of `raw` that these stand for; the rest is not stored yet.
    pub stored_raw: u64,
    /// Number of files.
    pub files: u64,
    /// Number of directories.
    #[serde(rename = "directories")]
    pub dirs: u64,
    /// Bytes of the device.
    pub device_total: u64,
    /// Bytes of it that are free and may be used.
    pub device_free: u64,
    /// What has become of the directory of the store; none where it is as it was found.
    pub displaced: Option<Displaced>,
    /// The slowest operations of the last minute, the slowest first.
    pub slowest: Vec<Slow>,
    /// Files with the most traffic lately, the busiest first.
    pub busiest: Vec<BusyFile>,
    /// The same of more files, without names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub traffic: Vec<Traffic>,
}

/// A store that is not where it was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Displaced {
    /// It was moved there; the mount goes on with it.
    Moved(String),
    /// Its file system was unmounted or covered by another; the mount goes on with it.
    OutOfSight,
    /// It was removed, or a part of it: nothing can become durable any more.
    Removed,
}

impl Displaced {
    fn of(presence: Presence) -> Option<Self> {
        match presence {
            Presence::There(Place::AsFound) => None,
            Presence::There(Place::At(path)) => Some(Self::Moved(path.display().to_string())),
            Presence::There(Place::OutOfSight) => Some(Self::OutOfSight),
            Presence::Removed => Some(Self::Removed),
        }
    }
}

/// How often something happened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Count {
    /// What.
    pub name: String,
    /// How often.
    pub count: u64,
}

/// One kind of operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Operation {
    /// Its name.
    pub name: String,
    /// How often.
    pub count: u64,
    /// Seconds in all.
    pub seconds: f64,
    /// How many took up to each of [`Live::bounds`], and longer.
    pub buckets: Vec<u64>,
}

/// Frames that were made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Encoded {
    /// How many.
    pub frames: u64,
    /// Bytes before.
    pub raw: u64,
    /// Bytes after.
    pub stored: u64,
    /// Seconds of all threads together.
    pub seconds: f64,
}

/// Settling.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settle {
    /// Files settled.
    pub files: u64,
    /// Files that are as small already as settling would make them.
    pub compact: u64,
    /// Files that do not compress.
    pub incompressible: u64,
    /// Attempts that failed or were overtaken.
    pub failed: u64,
    /// Raw bytes settled.
    pub raw: u64,
    /// Stored bytes before.
    pub before: u64,
    /// Stored bytes after.
    pub after: u64,
    /// Files that were asked for and wait.
    pub queue: u64,
    /// Whether a file is being settled.
    pub running: bool,
    /// The file that is being settled.
    pub current: Option<String>,
}

/// Collecting garbage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gc {
    /// Whether packs are being rewritten.
    pub running: bool,
    /// Stored bytes that nothing needs.
    pub garbage: u64,
    /// Packs rewritten.
    pub rewritten: u64,
    /// Live bytes moved.
    pub moved: u64,
    /// Packs deleted.
    pub deleted: u64,
    /// Bytes given back.
    pub freed: u64,
    /// Passes that failed.
    pub failed: u64,
}

/// A slow operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Slow {
    /// Which.
    pub operation: String,
    /// Seconds it took.
    pub seconds: f64,
    /// Seconds since it began.
    pub ago: f64,
    /// On what.
    pub path: String,
}

/// A busy file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BusyFile {
    /// Which.
    pub path: String,
    /// What programs did with it.
    #[serde(flatten)]
    pub traffic: Traffic,
}

/// What programs did with a file since it became busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Traffic {
    /// Its inode.
    pub inode: u64,
    /// Bytes that they read.
    pub read: u64,
    /// Bytes that they wrote.
    pub written: u64,
    /// Seconds since then.
    pub age: f64,
}

impl Live {
    /// Upper ends of the buckets of [`Operation::buckets`], in seconds.
    pub fn bounds() -> impl Iterator<Item = f64> {
        BUCKETS.iter().map(|&micros| micros as f64 / 1e6)
    }
}

fn encoded(counted: &shale_store::Encoded) -> Encoded {
    Encoded {
        frames: counted.frames.get(),
        raw: counted.raw.get(),
        stored: counted.stored.get(),
        seconds: seconds(counted.nanos.get()),
    }
}

fn count((name, count): (&str, u64)) -> Count {
    let name = name.to_owned();
    Count { name, count }
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
    /// The present state as JSON, with names.
    pub(crate) fn live(&self) -> Result<Vec<u8>, Error> {
        let mut live = self.snapshot()?;
        // At one moment, or files would not add up to the whole.
        let busiest = self.store.busiest(FOLLOWED);
        live.read = self.counters.read.get();
        live.written = self.counters.written.get();
        live.uptime = self.counters.uptime().as_secs_f64();
        live.operations.retain(|operation| operation.count > 0);
        live.errors.retain(|error| error.count > 0);
        live.refusals.retain(|refusal| refusal.count > 0);
        let (current, _) = self.settling_now();
        live.settle.current = current.map(|ino| self.path_of(ino));
        for slow in self.counters.slowest.list().into_iter().take(LISTED) {
            live.slowest.push(Slow {
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
                live.busiest.push(BusyFile { path, traffic });
            }
            live.traffic.push(traffic);
        }
        Ok(serde_json::to_vec(&live).unwrap_or_default())
    }

    /// Where an inode is, shown within a line.
    fn path_of(&self, ino: u64) -> String {
        shorten(self.path_below(ino))
    }

    /// Where an inode is, from the root of the mount.
    pub(crate) fn path_below(&self, ino: u64) -> String {
        let path = self.namespace().path(ino);
        match path.strip_prefix('/') {
            Some(below) if !below.is_empty() => below.to_owned(),
            _ => path,
        }
    }

    /// The present state without names, with zeros for what has not happened: whoever looks for
    /// an increase would miss the first one otherwise.
    ///
    /// # Errors
    /// When the store fails.
    pub(crate) fn snapshot(&self) -> Result<Live, Error> {
        let (store, counters) = (&self.store, &self.counters);
        let (counted, gauges) = (store.counters(), store.gauges());
        let totals = store.taken_below(ROOT)?;
        // A device that has died is no reason not to answer.
        let space = store.space().ok();
        let (settling, queue) = self.settling_now();
        let operations = Op::ALL.iter().map(|&op| {
            let times = counters.times(op);
            let buckets: Vec<u64> = times.buckets.iter().map(|bucket| bucket.get()).collect();
            Operation {
                name: op.name().to_owned(),
                count: buckets.iter().sum(),
                seconds: seconds(times.nanos.get()),
                buckets,
            }
        });
        let settle = &counters.settle;
        Ok(Live {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            store: self.place.store.clone(),
            mountpoint: self.place.mountpoint.clone(),
            pid: std::process::id(),
            time: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default()
                .as_secs_f64(),
            uptime: counters.uptime().as_secs_f64(),
            read: counters.read.get(),
            written: counters.written.get(),
            operations: operations.collect(),
            errors: counters.errors().map(count).collect(),
            refusals: counters.refusals().map(count).collect(),
            encoded: encoded(&counted.written),
            settled: encoded(&counted.settled),
            maps: encoded(&counted.maps),
            appends: counted.appends.get(),
            appended: counted.appended.get(),
            pack_syncs: counted.pack_syncs.get(),
            pack_reads: counted.pack_reads.get(),
            pack_read: counted.pack_read.get(),
            cache_hits: counted.cache_hits.get(),
            cache_misses: counted.cache_misses.get(),
            cache_used: gauges.cache_used,
            cache_limit: gauges.cache_limit,
            buffer_used: gauges.buffer_used,
            buffer_limit: gauges.buffer_limit,
            waits: counted.waits.get(),
            wait_seconds: seconds(counted.wait_nanos.get()),
            encode_queue: gauges.encode_queue,
            decode_queue: gauges.decode_queue,
            dirty_files: gauges.dirty_files,
            files_in_use: gauges.files,
            damaged_files: store.damaged_files(),
            commits: gauges.commits,
            journal_syncs: gauges.journal_syncs,
            settle: Settle {
                files: settle.files.get(),
                compact: settle.compact.get(),
                incompressible: settle.incompressible.get(),
                failed: settle.failed.get(),
                raw: settle.raw.get(),
                before: settle.before.get(),
                after: settle.after.get(),
                queue,
                running: settling.is_some(),
                current: None,
            },
            gc: Gc {
                running: store.collecting() == Collecting::Running,
                garbage: store.garbage(),
                rewritten: counted.packs_rewritten.get(),
                moved: counted.bytes_rewritten.get(),
                deleted: counted.packs_deleted.get(),
                freed: counted.bytes_deleted.get(),
                failed: counted.collections_failed.get(),
            },
            raw: totals.raw,
            stored: totals.stored,
            stored_raw: totals.stored_raw,
            files: totals.files,
            dirs: totals.dirs,
            device_total: space.map_or(0, |space| space.total),
            device_free: space.map_or(0, |space| space.available),
            displaced: Displaced::of(store.presence()),
            slowest: Vec::new(),
            busiest: Vec::new(),
            traffic: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::file_system;

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
        let live: Live = serde_json::from_slice(&fs.live().unwrap()).unwrap();
        assert!(live.operations.is_empty() && live.errors.is_empty());
        assert!(live.refusals.is_empty());
    }
}
