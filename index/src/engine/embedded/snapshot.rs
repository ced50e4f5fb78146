//! Snapshots: all live keys in one file, so that the journal before it is no longer needed.
//!
//! ```text
//! offset size   index/snapshot-<version>
//!      0    8  magic "SHALESNP"
//!      8    4  format version: 1
//!     12    4  crc32c of bytes 16 .. 24
//!     16    8  version: every commit up to here is in it
//!     24       blocks, the last one is the end
//!
//! offset size   block                        the end
//!      0    4  stored length                 0xffff_ffff
//!      4    4  raw length                    0
//!      8    4  number of entries             0
//!     12    4  crc32c of the other bytes     the same
//!     16       zstd frame of entries         24 bytes: number of all entries, their raw bytes,
//!                                            the version when it was finished
//!
//! entry: u8 leased, varint length of key, key, varint version, varint version - created,
//!        varint length of value, value
//! ```
//! Commits go on while it is written, so it holds some values newer than its version. Loading it
//! and then the journal from there on, with the highest version winning for every key, gives the
//! state of the journal's end. The journal up to the version when it was finished is durable
//! before the snapshot gets its name.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use shale_backing::{Access, Backing, BackingFile};

use super::memtable::Slot;
use super::options::MAX_COMMIT;
use super::paths::{self, io_error};
use crate::Error;
use crate::encoding::{Reader, put_bytes, put_varint};
use crate::kv::Version;

pub(crate) const PREFIX: &str = "snapshot-";
const MAGIC: [u8; 8] = *b"SHALESNP";
const FORMAT: u32 = 1;
const HEADER: usize = 24;
const BLOCK_HEADER: usize = 16;
const END: u32 = u32::MAX;
const BLOCK: usize = 256 << 10;
const LEVEL: i32 = 1;

/// Where the snapshot of a version lives.
pub(crate) fn path_of(version: Version) -> PathBuf {
    paths::numbered(PREFIX, version)
}

/// Receives the keys of a snapshot.
pub(crate) type Take<'a> = dyn FnMut(&[u8], Slot) -> Result<(), Error> + 'a;

/// The contents of a complete snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SnapshotSummary {
    /// Every commit up to here is in it.
    pub(crate) version: Version,
    /// The newest commit of which it may hold changes.
    pub(crate) finished: Version,
    /// Live keys.
    pub(crate) entries: u64,
    /// Their bytes before compression.
    pub(crate) raw: u64,
}

/// Writes a snapshot under a name that no reader opens.
#[derive(Debug)]
pub(crate) struct SnapshotWriter {
    file: Arc<dyn BackingFile>,
    path: PathBuf,
    offset: u64,
    block: Vec<u8>,
    in_block: u32,
    summary: SnapshotSummary,
}

impl SnapshotWriter {
    /// Begins one in an index directory.
    pub(crate) fn create(
        backing: &dyn Backing,
        dir: &Path,
        version: Version,
    ) -> Result<Self, Error> {
        let path = dir.join("snapshot-new");
        paths::remove(backing, &path)?;
        let file = backing
            .open(&path, Access::CreateNew)
            .map_err(io_error("create", &path))?;
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(&MAGIC);
        header[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        header[16..].copy_from_slice(&version.to_le_bytes());
        let crc = crc32c::crc32c(&header[16..]);
        header[12..16].copy_from_slice(&crc.to_le_bytes());
        file.write_all_at(&header, 0)
            .map_err(io_error("write", &path))?;
        let summary = SnapshotSummary {
            version,
            ..SnapshotSummary::default()
        };
        let (offset, block) = (HEADER as u64, Vec::with_capacity(BLOCK + BLOCK / 4));
        Ok(Self {
            file,
            path,
            offset,
            block,
            in_block: 0,
            summary,
        })
    }

    /// Adds a live key; keys come in order.
    pub(crate) fn push(&mut self, key: &[u8], slot: &Slot) -> Result<(), Error> {
        let Some(value) = &slot.value else {
            return Ok(());
        };
        self.block.push(u8::from(slot.leased));
        put_bytes(&mut self.block, key);
        put_varint(&mut self.block, slot.version);
        put_varint(&mut self.block, slot.version.wrapping_sub(slot.created));
        put_bytes(&mut self.block, value);
        self.in_block += 1;
        if self.block.len() >= BLOCK {
            self.flush()
        } else {
            Ok(())
        }
    }

    fn flush(&mut self) -> Result<(), Error> {
        if self.in_block == 0 {
            return Ok(());
        }
        let stored =
            zstd::bulk::compress(&self.block, LEVEL).map_err(io_error("compress", &self.path))?;
        // A block ends soon after 256 KiB and an entry is bounded by the size of a commit.
        let (len, raw) = (stored.len() as u32, self.block.len() as u32);
        self.write_block([len, raw, self.in_block], &stored)?;
        self.summary.entries += u64::from(self.in_block);
        self.summary.raw += u64::from(raw);
        self.block.clear();
        self.in_block = 0;
        Ok(())
    }

    fn write_block(&mut self, head: [u32; 3], stored: &[u8]) -> Result<(), Error> {
        let mut out = Vec::with_capacity(BLOCK_HEADER + stored.len());
        for number in head {
            out.extend_from_slice(&number.to_le_bytes());
        }
        let crc = crc32c::crc32c_append(crc32c::crc32c(&out), stored);
        out.extend_from_slice(&crc.to_le_bytes());
        out.extend_from_slice(stored);
        self.file
            .write_all_at(&out, self.offset)
            .map_err(io_error("write", &self.path))?;
        self.offset += out.len() as u64;
        Ok(())
    }

    /// Ends it, makes it durable and gives it its name.
    pub(crate) fn finish(
        mut self,
        backing: &dyn Backing,
        finished: Version,
    ) -> Result<SnapshotSummary, Error> {
        self.flush()?;
        self.summary.finished = finished;
        let mut end = Vec::new();
        for number in [self.summary.entries, self.summary.raw, finished] {
            end.extend_from_slice(&number.to_le_bytes());
        }
        self.write_block([END, 0, 0], &end)?;
        self.file
            .sync_data()
            .map_err(io_error("sync", &self.path))?;
        let dir = self.path.parent().unwrap_or(Path::new(paths::DIR));
        let path = dir.join(paths::numbered_name(PREFIX, self.summary.version));
        backing
            .rename(&self.path, &path)
            .map_err(io_error("rename", &self.path))?;
        backing.sync_dir(dir).map_err(io_error("sync", dir))?;
        Ok(self.summary)
    }
}

/// The end of a snapshot, without reading the rest. An incomplete one counts as empty: the base
/// does not need it, and a rebuild notices.
pub(crate) fn peek(backing: &dyn Backing, version: Version) -> Result<SnapshotSummary, Error> {
    const TAIL: usize = BLOCK_HEADER + 24;
    let path = path_of(version);
    let file = backing
        .open(&path, Access::Read)
        .map_err(io_error("open", &path))?;
    let len = file.len().map_err(io_error("measure", &path))?;
    let mut tail = [0; TAIL];
    let at = len.saturating_sub(TAIL as u64);
    file.read_at(&mut tail, at)
        .map_err(io_error("read", &path))?;
    let words = |bytes: &[u8]| {
        bytes
            .iter()
            .rev()
            .fold(0u64, |n, byte| n << 8 | u64::from(*byte))
    };
    let crc = crc32c::crc32c_append(crc32c::crc32c(&tail[..12]), &tail[BLOCK_HEADER..]);
    if words(&tail[..4]) != u64::from(END) || words(&tail[12..16]) != u64::from(crc) {
        return Ok(SnapshotSummary {
            version,
            ..SnapshotSummary::default()
        });
    }
    let [entries, raw, finished] = [16, 24, 32].map(|at| words(&tail[at..at + 8]));
    Ok(SnapshotSummary {
        version,
        finished,
        entries,
        raw,
    })
}

/// Hands out every key of a snapshot, in order.
pub(crate) fn load(
    backing: &dyn Backing,
    version: Version,
    visit: &mut Take<'_>,
) -> Result<SnapshotSummary, Error> {
    let path = path_of(version);
    let file = backing
        .open(&path, Access::Read)
        .map_err(io_error("open", &path))?;
    let corrupt = |offset: u64, detail: &str| Error::Corrupt {
        what: format!("{} at offset {offset}", path.display()),
        detail: detail.into(),
    };
    let mut header = [0; HEADER];
    let got = file
        .read_at(&mut header, 0)
        .map_err(io_error("read", &path))?;
    let u32_at = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| header[at + i]));
    if got < HEADER || header[..8] != MAGIC {
        return Err(corrupt(0, "it is not a snapshot"));
    }
    if u32_at(8) != FORMAT {
        let what = path.display().to_string();
        return Err(Error::Format {
            what,
            found: u32_at(8),
            known: FORMAT,
        });
    }
    if crc32c::crc32c(&header[16..]) != u32_at(12) || header[16..] != version.to_le_bytes() {
        return Err(corrupt(0, "the header is damaged"));
    }
    let len = file.len().map_err(io_error("measure", &path))?;
    let mut summary = SnapshotSummary {
        version,
        ..SnapshotSummary::default()
    };
    let mut offset = HEADER as u64;
    loop {
        let mut head = [0; BLOCK_HEADER];
        let got = file
            .read_at(&mut head, offset)
            .map_err(io_error("read", &path))?;
        if got < BLOCK_HEADER {
            return Err(corrupt(offset, "its end record is missing"));
        }
        let number = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| head[at + i]));
        let (stored_len, raw, count, crc) = (number(0), number(4), number(8), number(12));
        let stored_len = if stored_len == END { 24 } else { stored_len };
        let body = offset + BLOCK_HEADER as u64;
        if u64::from(stored_len) > len.saturating_sub(body) {
            return Err(corrupt(offset, "a block ends past the end of the file"));
        }
        let mut stored = vec![0; stored_len as usize];
        file.read_exact_at(&mut stored, body)
            .map_err(io_error("read", &path))?;
        if crc32c::crc32c_append(crc32c::crc32c(&head[..12]), &stored) != crc {
            return Err(corrupt(offset, "checksum mismatch"));
        }
        if number(0) == END {
            let mut words = stored.chunks_exact(8).map(|word| {
                word.iter()
                    .rev()
                    .fold(0u64, |number, byte| number << 8 | u64::from(*byte))
            });
            let mut word = || words.next().unwrap_or(0);
            let (entries, bytes) = (word(), word());
            summary.finished = word();
            if (entries, bytes) != (summary.entries, summary.raw) {
                let found = format!("{} of {entries} entries", summary.entries);
                return Err(corrupt(offset, &found));
            }
            if len > body + u64::from(stored_len) {
                return Err(corrupt(offset, "there are bytes after its end"));
            }
            return Ok(summary);
        }
        if raw as usize > BLOCK + MAX_COMMIT {
            return Err(corrupt(offset, "a block is too large"));
        }
        let block = zstd::bulk::decompress(&stored, raw as usize)
            .map_err(|e| corrupt(offset, &e.to_string()))?;
        let entries = read_block(&block, visit)?;
        if entries != Some(count) || block.len() != raw as usize {
            return Err(corrupt(offset, "a block does not decode"));
        }
        summary.entries += u64::from(count);
        summary.raw += u64::from(raw);
        offset = body + u64::from(stored_len);
    }
}

/// Hands out the entries of a block and counts them; `None` when they do not decode.
fn read_block(block: &[u8], visit: &mut Take<'_>) -> Result<Option<u32>, Error> {
    let mut reader = Reader::new(block);
    let mut count = 0;
    while !reader.is_empty() {
        let Some((key, slot)) = read_entry(&mut reader) else {
            return Ok(None);
        };
        visit(key, slot)?;
        count += 1;
    }
    Ok(Some(count))
}

fn read_entry<'a>(reader: &mut Reader<'a>) -> Option<(&'a [u8], Slot)> {
    let leased = match reader.byte()? {
        0 => false,
        1 => true,
        _ => return None,
    };
    let key = reader.bytes()?;
    let version = reader.varint()?;
    let created = version.wrapping_sub(reader.varint()?);
    let value = Some(Arc::from(reader.bytes()?));
    Some((
        key,
        Slot {
            version,
            created,
            value,
            leased,
        },
    ))
}
