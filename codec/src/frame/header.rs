//! The fixed header.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 8 | magic `F5 53 48 4C 46 52 1A A7` |
//! | 8 | 1 | format version, 1 |
//! | 9 | 1 | kind: 1 data, 2 map, 3 catalog, 4 tile, 5 directory of tiles, 6 gathered pieces |
//! | 10 | 2 | zero |
//! | 12 | 4 | length of the raw chunk |
//! | 16 | 4 | length of the frame, this header included |
//! | 20 | 4 | length of the directory, which follows the header |
//! | 24 | 8 | inode |
//! | 32 | 8 | offset of the first raw byte in the file |
//! | 40 | 8 | sequence |
//! | 48 | 8 | XXH3-64 of the directory |
//! | 56 | 8 | XXH3-64 of the 56 bytes before |
#![forbid(unsafe_code)]

use super::codes::byte_codes;
use crate::checksum::hash64;
use crate::error::Error;

/// Bytes of the fixed header.
pub const HEADER_LEN: usize = 64;

/// The first bytes of every frame. Not text, not a prefix of any common
/// format, and no byte occurs twice, so a scan cannot match one byte early.
pub const MAGIC: [u8; 8] = [0xF5, b'S', b'H', b'L', b'F', b'R', 0x1A, 0xA7];

/// The largest chunk a frame holds.
pub const MAX_RAW_LEN: usize = 16 << 20;

/// No frame is longer: an uncompressed chunk, its directory, and slack.
pub(crate) const MAX_FRAME_LEN: usize = MAX_RAW_LEN + MAX_RAW_LEN / 1000 + 1024;

const VERSION: u8 = 1;

byte_codes! {
    /// The contents of a frame.
    pub enum FrameKind {
        /// File data.
        Data = 1;
        /// A map segment.
        Map = 2;
        /// Index transactions or a dump of them, kept beside the data for disaster recovery.
        Catalog = 3;
        /// A tile: a box of an N-dimensional array in a file.
        Tile = 4;
        /// The directory of tiles.
        Tiles = 5;
        /// Small pieces of a file from several places.
        Gather = 6;
    }
}

/// What a frame belongs to; recorded in the header so that packs describe themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameMeta {
    /// What it holds.
    pub kind: FrameKind,
    /// The inode (0 for the catalog).
    pub inode: u64,
    /// Offset of the first raw byte in the file.
    pub offset: u64,
    /// Increases with every frame of a store; orders frames of the same range.
    pub sequence: u64,
}

/// The header of a frame, checked against its own checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// What the frame belongs to.
    pub meta: FrameMeta,
    /// Length of the chunk it holds.
    pub raw_len: u32,
    /// Length of the whole frame, header included: the next frame of a pack begins there.
    pub frame_len: u32,
    /// Length of the directory after the header.
    pub directory_len: u32,
    /// XXH3-64 of the directory, which in turn holds the hashes of the raw
    /// data: two frames with equal values here hold the same chunk.
    pub directory_hash: u64,
}

pub(crate) fn write_header(header: &FrameHeader) -> [u8; HEADER_LEN] {
    let mut bytes = [0; HEADER_LEN];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8] = VERSION;
    bytes[9] = header.meta.kind as u8;
    bytes[12..16].copy_from_slice(&header.raw_len.to_le_bytes());
    bytes[16..20].copy_from_slice(&header.frame_len.to_le_bytes());
    bytes[20..24].copy_from_slice(&header.directory_len.to_le_bytes());
    bytes[24..32].copy_from_slice(&header.meta.inode.to_le_bytes());
    bytes[32..40].copy_from_slice(&header.meta.offset.to_le_bytes());
    bytes[40..48].copy_from_slice(&header.meta.sequence.to_le_bytes());
    bytes[48..56].copy_from_slice(&header.directory_hash.to_le_bytes());
    let check = hash64(&bytes[..56]);
    bytes[56..].copy_from_slice(&check.to_le_bytes());
    bytes
}

/// Reads the header at the start of `bytes`, which need not hold more than [`HEADER_LEN`] bytes.
/// Succeeds only if magic, version and checksum are right and the lengths are possible, so a scan
/// can use it to find the next frame after damage.
pub fn parse_header(bytes: &[u8]) -> Result<FrameHeader, Error> {
    let Some(bytes) = bytes.first_chunk::<HEADER_LEN>() else {
        return Err(Error::WrongLength {
            expected: HEADER_LEN,
            found: bytes.len(),
        });
    };
    if bytes[..8] != MAGIC {
        return Err(Error::NotAFrame);
    }
    let expected = read_u64(bytes, 56);
    let found = hash64(&bytes[..56]);
    if expected != found {
        return Err(Error::Checksum {
            part: "header",
            expected,
            found,
        });
    }
    if bytes[8] != VERSION {
        return Err(Error::UnknownVersion {
            found: bytes[8],
            supported: VERSION,
        });
    }
    let kind = FrameKind::from_byte(bytes[9]).ok_or(Error::Malformed("unknown frame kind"))?;
    if bytes[10..12] != [0, 0] {
        return Err(Error::Malformed("reserved header bytes are not zero"));
    }
    let header = FrameHeader {
        meta: FrameMeta {
            kind,
            inode: read_u64(bytes, 24),
            offset: read_u64(bytes, 32),
            sequence: read_u64(bytes, 40),
        },
        raw_len: read_u32(bytes, 12),
        frame_len: read_u32(bytes, 16),
        directory_len: read_u32(bytes, 20),
        directory_hash: read_u64(bytes, 48),
    };
    if header.raw_len as usize > MAX_RAW_LEN {
        return Err(Error::Malformed("raw length exceeds the limit"));
    }
    if header.frame_len as usize > MAX_FRAME_LEN
        || (header.frame_len as usize) < HEADER_LEN + header.directory_len as usize
    {
        return Err(Error::Malformed("impossible frame length"));
    }
    Ok(header)
}

fn read_u32(bytes: &[u8; HEADER_LEN], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn read_u64(bytes: &[u8; HEADER_LEN], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}
