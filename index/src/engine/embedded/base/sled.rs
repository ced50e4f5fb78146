//! The base in sled.
//!
//! Each instance has its own directory, `index/sled/<id>`, so that an abandoned one cannot
//! interfere with its successor.
//!
//! | tree | key | value |
//! |---|---|---|
//! | `blocks` | 1, then the first key covered | a block, see [`super::block`] |
//! | `large` | xxh3 of the key, version, number (big-endian: 8, 8, 4 bytes) | 4 KiB of a large value |
//! | `meta` | `id`, `complete`, `format` | little-endian: which instance this is; the version up to which it has everything; 1 |

use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use sled::{Batch, IVec, Tree};

use super::block::{self, Block, Entry, Lookup, Payload};
use super::{BaseFault, Page};
use crate::engine::embedded::memtable::Slot;
use crate::engine::embedded::paths;
use crate::kv::Version;

const FORMAT: u64 = 1;
/// Blocks are split above this size and joined below a quarter of it: the measured optimum of
/// sled's memory between many small pages and few that its cache is slow to evict.
const BLOCK: usize = 768;
/// Values from this size on are kept in pieces, so that no page of sled grows into a blob file.
const LARGE: usize = 2048;
const PIECE: usize = 4096;
/// Blocks are written in batches of about this size: sled frees nothing while it applies one.
const BATCH: usize = 16 << 10;
const SLED_SEGMENT: usize = 512 << 10;
/// A sled that takes longer than this to open is given up.
const OPEN_TIMEOUT: Duration = Duration::from_secs(120);
/// How long to retry until an earlier instance of this process has released its files.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// Where an instance lives, relative to the store.
pub(crate) fn dir_of(id: u64) -> PathBuf {
    Path::new(paths::SLED_DIR).join(format!("{id:016x}"))
}

/// A base in sled.
#[derive(Debug)]
pub(crate) struct SledBase {
    id: u64,
    blocks: Tree,
    large: Tree,
    meta: Tree,
    db: sled::Db,
    /// Bytes written since it was opened.
    written: AtomicU64,
}

/// Runs an operation of sled and turns panics into faults.
fn guarded<T>(work: impl FnOnce() -> Result<T, BaseFault>) -> Result<T, BaseFault> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(BaseFault(format!(
            "sled panicked: {}",
            text.unwrap_or("without a word")
        )))
    })
}

fn fault(error: sled::Error) -> BaseFault {
    BaseFault(format!("sled: {error}"))
}

fn sled_key(start: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(start.len() + 1);
    key.push(1);
    key.extend_from_slice(start);
    key
}

fn u64_of(bytes: Option<IVec>) -> Option<u64> {
    Some(u64::from_le_bytes((&*bytes?).try_into().ok()?))
}

impl SledBase {
    /// Opens or creates the files of an instance.
    fn start(root: &Path, id: u64, cache: u64) -> Result<Self, BaseFault> {
        let path = root.join(dir_of(id));
        let (sender, receiver) = mpsc::channel();
        let open = move || {
            let since = Instant::now();
            let result = guarded(|| {
                loop {
                    let config = sled::Config::new()
                        .path(&path)
                        .cache_capacity(cache)
                        .segment_size(SLED_SEGMENT)
                        .mode(sled::Mode::LowSpace)
                        .flush_every_ms(None);
                    match config.open() {
                        // sled's threads release a closed instance a little late, and sled does not
                        // retry interrupted calls.
                        Err(sled::Error::Io(e))
                            if (e.kind() == ErrorKind::Interrupted
                                || e.to_string().contains("could not acquire lock"))
                                && since.elapsed() < LOCK_TIMEOUT =>
                        {
                            std::thread::sleep(Duration::from_millis(5));
                        }
                        other => return other.map_err(fault),
                    }
                }
            });
            let _ = sender.send(result);
        };
        std::thread::Builder::new()
            .name("shale-sled-open".into())
            .spawn(open)
            .map_err(|e| BaseFault(format!("no thread to open sled: {e}")))?;
        let db = receiver
            .recv_timeout(OPEN_TIMEOUT)
            .map_err(|_| BaseFault("sled does not return from opening".into()))??;
        guarded(|| {
            let tree = |name| db.open_tree(name).map_err(fault);
            let (blocks, large, meta) = (tree("blocks")?, tree("large")?, tree("meta")?);
            Ok(Self {
                id,
                blocks,
                large,
                meta,
                db: db.clone(),
                written: AtomicU64::new(0),
            })
        })
    }

    /// Creates an empty instance with a new id.
    pub(crate) fn create(root: &Path, cache: u64) -> Result<Self, BaseFault> {
        let disk = Self::start(root, paths::random(), cache)?;
        guarded(|| {
            disk.blocks
                .insert(sled_key(&[]), block::encode(&[], &[], &[]))
                .map_err(fault)?;
            disk.meta
                .insert("format", &FORMAT.to_le_bytes())
                .map_err(fault)?;
            disk.meta
                .insert("id", &disk.id.to_le_bytes())
                .map_err(fault)?;
            Ok(())
        })?;
        Ok(disk)
    }

    /// Opens the instance that a checkpoint names; it must have everything up to `complete`.
    pub(crate) fn open(
        root: &Path,
        id: u64,
        complete: Version,
        cache: u64,
    ) -> Result<Self, BaseFault> {
        if !root.join(dir_of(id)).is_dir() {
            return Err(BaseFault(format!("{} is missing", dir_of(id).display())));
        }
        let disk = Self::start(root, id, cache)?;
        guarded(|| {
            let meta = |key| disk.meta.get(key).map(u64_of).map_err(fault);
            let (format, found, has) = (meta("format")?, meta("id")?, meta("complete")?);
            if format != Some(FORMAT) || found != Some(id) {
                return Err(BaseFault("it is another instance".into()));
            }
            match has {
                Some(has) if has >= complete => Ok(()),
                other => Err(BaseFault(format!(
                    "it ends at {other:?}, expected {complete}"
                ))),
            }
        })?;
        Ok(disk)
    }

    /// Bytes written since it was opened.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// The id of this instance.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Makes everything merged so far durable and records that it is complete up to `version`.
    pub(crate) fn complete(&self, version: Version) -> Result<(), BaseFault> {
        guarded(|| {
            self.meta
                .insert("complete", &version.to_le_bytes())
                .map_err(fault)?;
            self.db.flush().map_err(fault)?;
            Ok(())
        })
    }

    /// The block that covers a key, as stored.
    fn covering(&self, key: &[u8]) -> Result<(IVec, IVec), BaseFault> {
        let wanted = sled_key(key);
        let floor = self.blocks.range(..=wanted).next_back();
        let pair = floor.transpose().map_err(fault)?;
        pair.ok_or_else(|| BaseFault("the first block is missing".into()))
    }

    fn block(&self, key: &[u8]) -> Result<(Vec<u8>, Block), BaseFault> {
        let (start, bytes) = self.covering(key)?;
        let start = start[1..].to_vec();
        match block::decode(&start, &bytes) {
            Some(block) if block.end.is_empty() || key < block.end.as_slice() => Ok((start, block)),
            Some(_) => Err(BaseFault(format!("the block of key {key:02x?} is missing"))),
            None => Err(BaseFault(format!("the block of key {key:02x?} is damaged"))),
        }
    }

    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Slot>, BaseFault> {
        guarded(|| {
            let (start, bytes) = self.covering(key)?;
            match block::find(&start[1..], &bytes, key) {
                Lookup::Found(entry) => match &entry.payload {
                    Payload::Inline(value) => Ok(Some(entry.slot(value.clone()))),
                    Payload::Large { .. } => Ok(Some(entry.slot(self.pieces(&entry)?))),
                },
                Lookup::Absent => Ok(None),
                Lookup::Bad => Err(BaseFault(format!("the block of key {key:02x?} is bad"))),
            }
        })
    }

    pub(super) fn page(&self, from: &[u8], end: &[u8]) -> Result<Page, BaseFault> {
        if from >= end {
            return Ok((Vec::new(), None));
        }
        guarded(|| {
            let (
                _,
                Block {
                    end: next,
                    mut entries,
                },
            ) = self.block(from)?;
            entries.retain(|entry| entry.key.as_slice() >= from && entry.key.as_slice() < end);
            let more = !next.is_empty() && next.as_slice() < end;
            Ok((entries, more.then_some(next)))
        })
    }

    pub(super) fn large(&self, entry: &Entry) -> Result<Arc<[u8]>, BaseFault> {
        guarded(|| self.pieces(entry))
    }

    fn pieces(&self, entry: &Entry) -> Result<Arc<[u8]>, BaseFault> {
        let Payload::Large { len, crc } = entry.payload else {
            return Err(BaseFault("not a large value".into()));
        };
        let mut value = Vec::new();
        for piece in 0..len.div_ceil(PIECE as u64) {
            let key = piece_key(&entry.key, entry.version, piece);
            match self.large.get(key).map_err(fault)? {
                Some(bytes) => value.extend_from_slice(&bytes),
                None => return Err(BaseFault(format!("key {:02x?} lacks a piece", entry.key))),
            }
        }
        if value.len() as u64 != len || crc32c::crc32c(&value) != crc {
            return Err(BaseFault(format!(
                "the large value of key {:02x?} is damaged",
                entry.key
            )));
        }
        Ok(value.into())
    }

    /// Applies changes in key order, block by block.
    pub(super) fn merge<'a>(
        &self,
        changes: impl Iterator<Item = (&'a [u8], &'a Slot)>,
    ) -> Result<(), BaseFault> {
        guarded(|| {
            let mut changes = changes.peekable();
            let mut writes = Writes::default();
            while let Some((key, _)) = changes.peek() {
                let (start, block) = self.block(key)?;
                let mut run = Run {
                    end: block.end,
                    ..Run::default()
                };
                run.take(block.entries, &mut changes, &mut writes);
                // A run that has become too small takes over its neighbours.
                while run.size < BLOCK / 4 && !run.end.is_empty() {
                    let (next, block) = self.block(&run.end)?;
                    if next != run.end {
                        return Err(BaseFault(format!("no block begins at {:02x?}", run.end)));
                    }
                    writes.remove(&next);
                    run.end = block.end;
                    run.take(block.entries, &mut changes, &mut writes);
                }
                writes.put_run(start, &run);
                if writes.bytes >= BATCH {
                    self.write(std::mem::take(&mut writes))?;
                }
            }
            self.write(writes)
        })
    }

    fn write(&self, writes: Writes) -> Result<(), BaseFault> {
        self.written
            .fetch_add(writes.bytes as u64, Ordering::Relaxed);
        // Pieces exist before a block names them and are removed after no block does.
        if let Some(pieces) = writes.new_pieces {
            self.large.apply_batch(pieces).map_err(fault)?;
        }
        self.blocks.apply_batch(writes.blocks).map_err(fault)?;
        match writes.old_pieces {
            Some(pieces) => self.large.apply_batch(pieces).map_err(fault),
            None => Ok(()),
        }
    }
}

fn piece_key(key: &[u8], version: Version, piece: u64) -> [u8; 20] {
    let mut out = [0; 20];
    out[..8].copy_from_slice(&twox_hash::XxHash3_64::oneshot(key).to_be_bytes());
    out[8..16].copy_from_slice(&version.to_be_bytes());
    // Values are bounded by the size of a commit.
    out[16..].copy_from_slice(&(piece as u32).to_be_bytes());
    out
}

/// The pending writes of a merge.
#[derive(Default)]
struct Writes {
    blocks: Batch,
    new_pieces: Option<Batch>,
    old_pieces: Option<Batch>,
    bytes: usize,
}

impl Writes {
    fn remove(&mut self, start: &[u8]) {
        self.blocks.remove(sled_key(start));
    }

    fn put_block(&mut self, start: &[u8], end: &[u8], entries: &[Entry]) {
        let bytes = block::encode(start, end, entries);
        self.bytes += bytes.len();
        self.blocks.insert(sled_key(start), bytes);
    }

    /// Writes the entries of a run as blocks of the right size.
    fn put_run(&mut self, mut start: Vec<u8>, run: &Run) {
        let (mut first, mut size) = (0, 0);
        for (at, entry) in run.entries.iter().enumerate() {
            if at > first && size + entry.size() > BLOCK {
                self.put_block(&start, &entry.key, &run.entries[first..at]);
                start.clone_from(&entry.key);
                (first, size) = (at, 0);
            }
            size += entry.size();
        }
        self.put_block(&start, &run.end, &run.entries[first..]);
    }

    fn put_value(&mut self, key: &[u8], version: Version, value: &Arc<[u8]>) -> Payload {
        if value.len() < LARGE {
            return Payload::Inline(value.clone());
        }
        let pieces = self.new_pieces.get_or_insert_default();
        for (number, piece) in value.chunks(PIECE).enumerate() {
            pieces.insert(&piece_key(key, version, number as u64), piece);
        }
        self.bytes += value.len();
        Payload::Large {
            len: value.len() as u64,
            crc: crc32c::crc32c(value),
        }
    }

    fn drop_value(&mut self, entry: &Entry) {
        if let Payload::Large { len, .. } = entry.payload {
            let pieces = self.old_pieces.get_or_insert_default();
            for piece in 0..len.div_ceil(PIECE as u64) {
                pieces.remove(&piece_key(&entry.key, entry.version, piece));
            }
        }
    }
}

/// Entries for new blocks.
#[derive(Default)]
struct Run {
    entries: Vec<Entry>,
    size: usize,
    end: Vec<u8>,
}

impl Run {
    fn push(&mut self, entry: Entry) {
        self.size += entry.size();
        self.entries.push(entry);
    }

    /// Takes over the entries of a block, merged with the changes that it covers.
    fn take<'a>(
        &mut self,
        old: Vec<Entry>,
        changes: &mut std::iter::Peekable<impl Iterator<Item = (&'a [u8], &'a Slot)>>,
        writes: &mut Writes,
    ) {
        let mut old = old.into_iter().peekable();
        loop {
            let covered = |key: &[u8]| self.end.is_empty() || key < self.end.as_slice();
            let Some((key, slot)) = changes.next_if(|(key, _)| covered(key)) else {
                break;
            };
            while let Some(entry) = old.next_if(|entry| entry.key.as_slice() < key) {
                self.push(entry);
            }
            if let Some(entry) = old.next_if(|entry| entry.key == key) {
                if entry.version > slot.version {
                    self.push(entry);
                    continue;
                }
                // The same version again, after a crash, keeps its pieces.
                if entry.version < slot.version {
                    writes.drop_value(&entry);
                }
            }
            if let Some(value) = &slot.value {
                let Slot {
                    version,
                    created,
                    leased,
                    ..
                } = *slot;
                let payload = writes.put_value(key, version, value);
                self.push(Entry {
                    key: key.to_vec(),
                    version,
                    created,
                    leased,
                    payload,
                });
            }
        }
        old.for_each(|entry| self.push(entry));
    }
}
