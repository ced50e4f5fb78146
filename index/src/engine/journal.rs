//! The journal: every commit in order, the truth of the index.
//!
//! It is a chain of segment files `index/journal-<first version>`. A commit is one record,
//! written at once, so that it survives the death of the process as soon as it returned; it
//! survives the loss of power once it was synced. `record` has the bytes, `segment` the files,
//! `writer` appends and syncs, `reader` finds out what a set of segments says.

pub(crate) mod reader;
pub(crate) mod record;
pub(crate) mod segment;
pub(crate) mod writer;

use super::change::Commit;
use crate::Error;
use crate::wire::{Reader, put_varint};

/// A commit as bytes that can be kept elsewhere: `varint version, body, crc32c` (little-endian,
/// over everything before it).
#[must_use]
pub fn encode_commit(commit: &Commit) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, commit.version);
    commit.encode_body(&mut out);
    let crc = crc32c::crc32c(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out
}

/// Reads what [`encode_commit`] wrote.
///
/// # Errors
/// [`Error::Corrupt`] for anything else.
pub fn decode_commit(bytes: &[u8]) -> Result<Commit, Error> {
    let corrupt = |detail: &str| Error::Corrupt {
        what: "commit".into(),
        detail: detail.into(),
    };
    let (rest, crc) = bytes
        .split_last_chunk::<4>()
        .ok_or_else(|| corrupt("too short"))?;
    let (expected, found) = (u32::from_le_bytes(*crc), crc32c::crc32c(rest));
    if expected != found {
        let detail = format!("checksum {found:08x}, expected {expected:08x}");
        return Err(corrupt(&detail));
    }
    let version = Reader::new(rest)
        .varint()
        .ok_or_else(|| corrupt("no version"))?;
    // A varint ends with the first byte below 0x80.
    let body = rest
        .iter()
        .position(|byte| *byte < 0x80)
        .map_or(&[][..], |at| &rest[at + 1..]);
    Commit::decode_body(version, body).ok_or_else(|| corrupt("changes do not decode"))
}
