//! One record of a journal segment.
//!
//! ```text
//! offset size
//!      0    4  magic "SJR1"
//!      4    4  crc32c of the segment's salt, then bytes 8 .. 32 + body
//!      8    4  length of the body
//!     12    4  kind: 1 = commit, 2 = mark
//!     16    8  version: of the commit; of a mark: the last commit before it
//!     24    8  durable: the newest version known to be durable when this was appended
//!     32       body of a commit (see `encoding`); a mark has none
//!              zero bytes up to a multiple of 8
//! ```
//! Integers are little-endian. The salt keeps values that look like records from passing for
//! records when a damaged segment is searched for the next good one. `durable` tells a torn tail
//! from damage: a bad record was acknowledged if any later record says so.

use std::ops::Range;

use crate::kv::Version;

pub(crate) const MAGIC: [u8; 4] = *b"SJR1";
pub(crate) const HEADER: usize = 32;
const ALIGN: usize = 8;

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordKind {
    /// A transaction.
    Commit,
    /// A statement about what is durable, written at a clean close.
    Mark,
}

/// A record in a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JournalRecord {
    pub(crate) kind: RecordKind,
    pub(crate) version: Version,
    pub(crate) durable: Version,
    /// Where it begins.
    pub(crate) offset: usize,
    /// Where its body is.
    pub(crate) body: Range<usize>,
}

/// A stretch of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// A good record.
    Record(JournalRecord),
    /// Bytes that are not a record; `blank` when they are all zero.
    Bad {
        /// Where they are.
        range: Range<usize>,
        /// Whether they are all zeros.
        blank: bool,
    },
}

/// Bytes a record with this body takes.
pub(crate) fn stored_len(body: usize) -> usize {
    (HEADER + body).next_multiple_of(ALIGN)
}

/// Writes a record.
pub(crate) fn encode(
    salt: u64,
    kind: RecordKind,
    version: Version,
    durable: Version,
    body: &[u8],
) -> Vec<u8> {
    let mut out = Vec::with_capacity(stored_len(body.len()));
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[0; 4]);
    // Bodies are bounded far below 4 GiB by the writer.
    out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    let kind: u32 = match kind {
        RecordKind::Commit => 1,
        RecordKind::Mark => 2,
    };
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&version.to_le_bytes());
    out.extend_from_slice(&durable.to_le_bytes());
    out.extend_from_slice(body);
    let crc = checksum(salt, &out[8..]);
    out[4..8].copy_from_slice(&crc.to_le_bytes());
    out.resize(stored_len(body.len()), 0);
    out
}

fn checksum(salt: u64, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&salt.to_le_bytes()), bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The record at an offset, if there is a good one.
fn record_at(salt: u64, bytes: &[u8], offset: usize) -> Option<JournalRecord> {
    if bytes.get(offset..)?.first_chunk()? != &MAGIC {
        return None;
    }
    let len = usize::try_from(u32_at(bytes, offset + 8)?).ok()?;
    let body = offset + HEADER..(offset + HEADER).checked_add(len)?;
    if checksum(salt, bytes.get(offset + 8..body.end)?) != u32_at(bytes, offset + 4)? {
        return None;
    }
    let kind = match u32_at(bytes, offset + 12)? {
        1 => RecordKind::Commit,
        2 => RecordKind::Mark,
        _ => return None,
    };
    let (version, durable) = (u64_at(bytes, offset + 16)?, u64_at(bytes, offset + 24)?);
    Some(JournalRecord {
        kind,
        version,
        durable,
        offset,
        body,
    })
}

/// Everything in a segment from `offset` on: records and the bytes between them.
pub(crate) fn pieces(salt: u64, bytes: &[u8], offset: usize) -> impl Iterator<Item = Piece> {
    let mut at = offset;
    std::iter::from_fn(move || {
        if at >= bytes.len() {
            return None;
        }
        if let Some(record) = record_at(salt, bytes, at) {
            at += stored_len(record.body.len());
            return Some(Piece::Record(record));
        }
        let start = at;
        at = (start.next_multiple_of(ALIGN)..bytes.len())
            .step_by(ALIGN)
            .find(|next| *next > start && record_at(salt, bytes, *next).is_some())
            .unwrap_or(bytes.len());
        let blank = bytes[start..at].iter().all(|byte| *byte == 0);
        Some(Piece::Bad {
            range: start..at,
            blank,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SALT: u64 = 77;

    fn two() -> (Vec<u8>, usize) {
        let mut bytes = encode(SALT, RecordKind::Commit, 5, 4, b"first body");
        let second = bytes.len();
        bytes.extend(encode(SALT, RecordKind::Commit, 6, 5, b"second"));
        (bytes, second)
    }

    #[test]
    fn every_flipped_bit_of_a_record_is_noticed_and_the_next_one_found() {
        let (good, second) = two();
        let padding = HEADER + b"first body".len()..second;
        for at in (0..second).filter(|at| !padding.contains(at)) {
            let mut bytes = good.clone();
            bytes[at] ^= 0x10;
            let found: Vec<_> = pieces(SALT, &bytes, 0).collect();
            assert_eq!(
                found[0],
                Piece::Bad {
                    range: 0..second,
                    blank: false
                },
                "byte {at}"
            );
            assert!(
                matches!(&found[1], Piece::Record(r) if r.version == 6),
                "byte {at}"
            );
        }
    }

    #[test]
    fn a_record_of_another_segment_is_no_record() {
        let (bytes, _) = two();
        let found: Vec<_> = pieces(SALT + 1, &bytes, 0).collect();
        assert_eq!(
            found,
            [Piece::Bad {
                range: 0..bytes.len(),
                blank: false
            }]
        );
    }

    #[test]
    fn the_format_of_a_record_is_pinned() {
        let bytes = encode(1, RecordKind::Commit, 2, 1, b"abc");
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let tail = "0300000001000000020000000000000001000000000000006162630000000000";
        assert_eq!(&hex[..8], "534a5231");
        assert_eq!(&hex[16..], tail);
        let crc = crc32c::crc32c(&[&1u64.to_le_bytes()[..], &bytes[8..35]].concat());
        assert_eq!(bytes[4..8], crc.to_le_bytes());
    }
}
