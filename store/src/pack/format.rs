//! Names, header, directory and trailer of a pack.
//!
//! ```text
//! header                                  trailer
//! offset size field                       offset size field
//!      0    8 magic "SHALEPK\0"                0    8 magic "SHALEPE\0"
//!      8    4 format version                   8    8 where the directory frame begins
//!     12    4 reserved, 0                     16    4 length of the directory frame
//!     16   16 identity of the store           20    8 pack
//!     32    8 pack                            28    4 crc32c of bytes 0..28
//!     40   20 reserved, 0
//!     60    4 crc32c of bytes 0..60
//!
//! directory: per frame 37 bytes: kind 1, inode 8, offset 8, sequence 8, at 4, frame_len 4, raw_len 4
//! ```
//! Integers are little-endian.

use shale_backing::BackingFile;
use shale_codec::{
    Decoder, Effort, Encoder, FrameHeader, FrameKind, FrameMeta, Hint, parse_header,
};
pub(crate) use shale_index::extent::{FrameAt, PackId};

use crate::Error;

pub(crate) const HEADER_LEN: usize = 64;
const TRAILER_LEN: usize = 32;
const HEADER_MAGIC: &[u8; 8] = b"SHALEPK\0";
const TRAILER_MAGIC: &[u8; 8] = b"SHALEPE\0";
const VERSION: u32 = 1;
const ENTRY_LEN: usize = 37;

/// A frame as the directory of its pack lists it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirectoryEntry {
    /// Where it begins in the pack.
    pub(crate) at: u64,
    /// Its length as stored.
    pub(crate) frame_len: u32,
    /// Its length decoded.
    pub(crate) raw_len: u32,
    /// The file and offset of its contents.
    pub(crate) meta: FrameMeta,
}

/// The directory at the end of a sealed pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PackDirectory {
    /// Where it begins, which is where the frames end.
    pub(crate) at: u64,
    pub(crate) entries: Vec<DirectoryEntry>,
}

impl DirectoryEntry {
    /// An entry for no frame.
    pub(crate) const EMPTY: Self = Self {
        at: 0,
        frame_len: 0,
        raw_len: 0,
        meta: FrameMeta {
            kind: FrameKind::Data,
            inode: 0,
            offset: 0,
            sequence: 0,
        },
    };

    pub(crate) fn new(at: u64, header: &FrameHeader) -> Self {
        Self {
            at,
            frame_len: header.frame_len,
            raw_len: header.raw_len,
            meta: header.meta,
        }
    }
}

/// Entries of contiguous frames, from their headers. Offsets are relative to the first frame.
pub(crate) fn entries_of(frames: &[u8]) -> Result<Vec<DirectoryEntry>, Error> {
    let mut entries = Vec::new();
    let mut at = 0;
    while at < frames.len() {
        let header = parse_header(&frames[at..])?;
        entries.push(DirectoryEntry::new(at as u64, &header));
        at += header.frame_len as usize;
    }
    Ok(entries)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn long(bytes: &[u8], at: usize) -> u64 {
    let mut long = [0; 8];
    long.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(long)
}

pub(super) fn encode_header(store_id: [u8; 16], pack: PackId) -> [u8; HEADER_LEN] {
    let mut bytes = [0; HEADER_LEN];
    bytes[..8].copy_from_slice(HEADER_MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16..32].copy_from_slice(&store_id);
    bytes[32..40].copy_from_slice(&pack.0.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..60]);
    bytes[60..].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// Checks a header; the identity of the store and the pack it names.
pub(crate) fn decode_header(bytes: &[u8; HEADER_LEN]) -> Result<([u8; 16], PackId), String> {
    if &bytes[..8] != HEADER_MAGIC {
        return Err("no pack header".to_owned());
    }
    if word(bytes, 60) != crc32c::crc32c(&bytes[..60]) {
        return Err("pack header fails its checksum".to_owned());
    }
    if word(bytes, 8) != VERSION {
        return Err(format!("pack format version {} is unknown", word(bytes, 8)));
    }
    let mut id = [0; 16];
    id.copy_from_slice(&bytes[16..32]);
    Ok((id, PackId(long(bytes, 32))))
}

fn kind_of(code: u8) -> Option<FrameKind> {
    [
        FrameKind::Data,
        FrameKind::Map,
        FrameKind::Catalog,
        FrameKind::Tile,
        FrameKind::Tiles,
        FrameKind::Gather,
    ]
    .into_iter()
    .find(|&k| k as u8 == code)
}

/// Directory frame and trailer that seal a pack of length `end`.
pub(crate) fn encode_footer(
    pack: PackId,
    end: u64,
    entries: &[DirectoryEntry],
    sequence: u64,
) -> Result<Vec<u8>, Error> {
    let mut raw = Vec::with_capacity(entries.len() * ENTRY_LEN);
    for entry in entries {
        raw.push(entry.meta.kind as u8);
        raw.extend_from_slice(&entry.meta.inode.to_le_bytes());
        raw.extend_from_slice(&entry.meta.offset.to_le_bytes());
        raw.extend_from_slice(&entry.meta.sequence.to_le_bytes());
        raw.extend_from_slice(&(entry.at as u32).to_le_bytes());
        raw.extend_from_slice(&entry.frame_len.to_le_bytes());
        raw.extend_from_slice(&entry.raw_len.to_le_bytes());
    }
    let meta = FrameMeta {
        kind: FrameKind::Catalog,
        inode: 0,
        offset: pack.0,
        sequence,
    };
    let mut footer = Vec::new();
    Encoder::new().encode(&meta, &Hint::Unknown, Effort::Zstd(3), &raw, &mut footer)?;
    let frame_len = footer.len() as u32;
    let begin = footer.len();
    footer.extend_from_slice(TRAILER_MAGIC);
    footer.extend_from_slice(&end.to_le_bytes());
    footer.extend_from_slice(&frame_len.to_le_bytes());
    footer.extend_from_slice(&pack.0.to_le_bytes());
    let crc = crc32c::crc32c(&footer[begin..]);
    footer.extend_from_slice(&crc.to_le_bytes());
    Ok(footer)
}

/// The directory of a sealed pack; `None` when it is not sealed or the seal is damaged.
pub(crate) fn read_directory(
    file: &dyn BackingFile,
    pack: PackId,
) -> std::io::Result<Option<PackDirectory>> {
    let len = file.len()?;
    if len < (HEADER_LEN + TRAILER_LEN) as u64 {
        return Ok(None);
    }
    let mut trailer = [0; TRAILER_LEN];
    file.read_exact_at(&mut trailer, len - TRAILER_LEN as u64)?;
    if &trailer[..8] != TRAILER_MAGIC
        || word(&trailer, 28) != crc32c::crc32c(&trailer[..28])
        || long(&trailer, 20) != pack.0
    {
        return Ok(None);
    }
    let (at, frame_len) = (long(&trailer, 8), word(&trailer, 16));
    if at.checked_add(u64::from(frame_len)) != Some(len - TRAILER_LEN as u64) {
        return Ok(None);
    }
    let mut frame = vec![0; frame_len as usize];
    file.read_exact_at(&mut frame, at)?;
    let mut raw = Vec::new();
    let own = Decoder::new()
        .decode(&frame, &mut raw)
        .is_ok_and(|header| header.meta.kind == FrameKind::Catalog && header.meta.offset == pack.0);
    if !own || raw.len() % ENTRY_LEN != 0 {
        return Ok(None);
    }
    let entries: Option<_> = raw.chunks_exact(ENTRY_LEN).map(decode_entry).collect();
    Ok(entries.map(|entries| PackDirectory { at, entries }))
}

fn decode_entry(bytes: &[u8]) -> Option<DirectoryEntry> {
    Some(DirectoryEntry {
        meta: FrameMeta {
            kind: kind_of(bytes[0])?,
            inode: long(bytes, 1),
            offset: long(bytes, 9),
            sequence: long(bytes, 17),
        },
        at: u64::from(word(bytes, 25)),
        frame_len: word(bytes, 29),
        raw_len: word(bytes, 33),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_header_is_refused() {
        let good = encode_header([7; 16], PackId(99));
        assert_eq!(decode_header(&good), Ok(([7; 16], PackId(99))));
        for byte in 0..HEADER_LEN {
            let mut bad = good;
            bad[byte] ^= 1;
            assert!(decode_header(&bad).is_err(), "byte {byte}");
        }
    }
}
