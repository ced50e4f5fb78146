//! Gathered frames: pieces of a file that are not contiguous in it, in one frame.
//!
//! ```text
//! decoded: varint number of pieces, for each varint offset and length, zeros up to the phase of
//! the first piece, then the bytes of the pieces, which end the frame
//! ```

use std::ops::Range;

use shale_index::encoding::{Reader, put_varint};
use shale_index::extent::MAX_FILE_SIZE;

/// A multiple of the widths of numbers.
const PHASE: u64 = 8;

/// A piece of a gathered frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Where its bytes are in the file.
    pub(crate) range: Range<u64>,
    /// Where they begin in the decoded frame.
    pub(crate) skip: u32,
}

/// Appends the table that precedes the bytes of the pieces.
pub(crate) fn put_table(out: &mut Vec<u8>, pieces: &[Range<u64>]) {
    put_varint(out, pieces.len() as u64);
    for piece in pieces {
        put_varint(out, piece.start);
        put_varint(out, piece.end - piece.start);
    }
    // Elements keep their phase in the file; otherwise the codec would not find them.
    let first = pieces.first().map_or(0, |piece| piece.start);
    while out.len() as u64 % PHASE != first % PHASE {
        out.push(0);
    }
}

/// The pieces of a decoded gathered frame; `None` if it is not one.
pub(crate) fn pieces(raw: &[u8]) -> Option<Vec<Piece>> {
    let mut reader = Reader::new(raw);
    let count = reader.varint()?;
    let mut ranges = Vec::new();
    let mut total = 0u64;
    for _ in 0..count {
        let (offset, len) = (reader.varint()?, reader.varint()?);
        let end = offset.checked_add(len)?;
        if len == 0 || end > MAX_FILE_SIZE {
            return None;
        }
        ranges.push(offset..end);
        total = total.checked_add(len)?;
    }
    let mut skip = u64::try_from(raw.len()).ok()?.checked_sub(total)?;
    Some(
        ranges
            .into_iter()
            .map(|range| {
                let at = skip as u32;
                skip += range.end - range.start;
                Piece { range, skip: at }
            })
            .collect(),
    )
}
