//! A segment file of the journal.
//!
//! ```text
//! offset size
//!      0    8  magic "SHALEJNL"
//!      8    4  format version: 1
//!     12    4  crc32c of bytes 16 .. 32
//!     16    8  epoch: counts the segments of this index, in order of use
//!     24    8  salt of the checksums of its records
//!     32       records
//! ```
//! The first version is in the name alone: the header is written and synced while the file is
//! still the spare one (`index/journal-spare`), long before it is known which commit comes
//! first. A segment overrules every record of an older epoch from its first version on; this
//! replaces an abandoned segment, and leaves a torn tail behind.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use shale_backing::{Access, Backing, BackingFile};

use crate::Error;
use crate::engine::embedded::paths::{self, io_error};
use crate::kv::Version;

pub(crate) const PREFIX: &str = "journal-";
pub(crate) const HEADER: usize = 32;
const MAGIC: [u8; 8] = *b"SHALEJNL";
const FORMAT: u32 = 1;

/// The contents of the header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) epoch: u64,
    pub(crate) salt: u64,
}

impl SegmentHeader {
    pub(crate) fn encode(self) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        out[..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        out[16..24].copy_from_slice(&self.epoch.to_le_bytes());
        out[24..32].copy_from_slice(&self.salt.to_le_bytes());
        let crc = crc32c::crc32c(&out[16..]);
        out[12..16].copy_from_slice(&crc.to_le_bytes());
        out
    }

    pub(crate) fn decode(path: &Path, bytes: &[u8]) -> Result<Self, Error> {
        let corrupt = |detail: &str| Error::Corrupt {
            what: format!("header of {}", path.display()),
            detail: detail.into(),
        };
        let Some(bytes) = bytes.first_chunk::<HEADER>() else {
            return Err(corrupt("the file is too short"));
        };
        if bytes[..8] != MAGIC {
            return Err(corrupt("it is not a journal segment"));
        }
        let u32_at = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| bytes[at + i]));
        let u64_at = |at| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        if u32_at(8) != FORMAT {
            let what = path.display().to_string();
            return Err(Error::Format {
                what,
                found: u32_at(8),
                known: FORMAT,
            });
        }
        if crc32c::crc32c(&bytes[16..]) != u32_at(12) {
            return Err(corrupt("checksum mismatch"));
        }
        Ok(Self {
            epoch: u64_at(16),
            salt: u64_at(24),
        })
    }
}

/// Where a segment with this first version lives.
pub(crate) fn path_of(first: Version) -> PathBuf {
    paths::numbered(PREFIX, first)
}

/// A segment that is ready but not in use.
#[derive(Debug)]
pub(crate) struct SpareSegment {
    pub(crate) file: Arc<dyn BackingFile>,
    pub(crate) header: SegmentHeader,
    /// Bytes of space reserved for it.
    pub(crate) reserved: u64,
}

impl SpareSegment {
    fn path() -> PathBuf {
        paths::path("journal-spare")
    }

    /// Creates the spare segment, with its space reserved and its header durable.
    pub(crate) fn create(backing: &dyn Backing, epoch: u64, reserve: u64) -> Result<Self, Error> {
        let path = Self::path();
        paths::remove(backing, &path)?;
        let file = backing
            .open(&path, Access::CreateNew)
            .map_err(io_error("create", &path))?;
        let made = (|| {
            file.reserve(reserve)
                .map_err(io_error("reserve space for", &path))?;
            let header = SegmentHeader {
                epoch,
                salt: paths::random(),
            };
            file.write_all_at(&header.encode(), 0)
                .map_err(io_error("write", &path))?;
            file.sync_data().map_err(io_error("sync", &path))?;
            Ok(header)
        })();
        match made {
            Ok(header) => Ok(Self {
                file,
                header,
                reserved: reserve,
            }),
            Err(e) => {
                // An incomplete spare is useless, especially on a full disk.
                let _ = paths::remove(backing, &path);
                Err(e)
            }
        }
    }

    /// Gives it its name. Durable after a sync of the directory.
    pub(crate) fn put_in_place(&self, backing: &dyn Backing, first: Version) -> Result<(), Error> {
        let from = Self::path();
        backing
            .rename(&from, &path_of(first))
            .map_err(io_error("rename", &from))
    }

    /// The spare of a former process, if it is as good as new. Using it keeps its reserved space,
    /// which matters on a full disk.
    pub(crate) fn reopen(backing: &dyn Backing, last_epoch: u64, reserve: u64) -> Option<Self> {
        let path = Self::path();
        let file = backing.open(&path, Access::Write).ok()?;
        let mut bytes = [0; HEADER];
        file.read_exact_at(&mut bytes, 0).ok()?;
        let header = SegmentHeader::decode(&path, &bytes).ok()?;
        let unused = file.len().ok()? == HEADER as u64 && header.epoch > last_epoch;
        if !unused {
            return None;
        }
        file.reserve(reserve).ok()?;
        file.sync_data().ok()?;
        Some(Self {
            file,
            header,
            reserved: reserve,
        })
    }
}
