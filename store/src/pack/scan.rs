//! Scanning a pack without its directory.

use std::io;

use shale_backing::BackingFile;
use shale_codec::{FrameHeader, HEADER_LEN as FRAME_HEADER_LEN, MAGIC, parse_header};

use super::format::HEADER_LEN;

/// The items that a scan finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scanned {
    /// A frame whose header is sound and which fits into the file.
    Frame {
        /// Where it begins.
        at: u64,
        /// What its header says.
        header: FrameHeader,
    },
    /// Bytes that are not a frame: a torn append, damage, or the pack's trailer.
    Gap {
        /// Where they begin.
        at: u64,
        /// How many they are.
        len: u64,
    },
}

/// Reports every frame of a pack in order, searching for the next one after other bytes.
pub(crate) fn scan(file: &dyn BackingFile, found: impl FnMut(Scanned)) -> io::Result<()> {
    scan_from(file, HEADER_LEN as u64, found)
}

/// Reports every frame of a file from an offset on.
pub(crate) fn scan_from(
    file: &dyn BackingFile,
    start: u64,
    mut found: impl FnMut(Scanned),
) -> io::Result<()> {
    let len = file.len()?;
    let mut at = start;
    let mut gap = None;
    let mut header = [0; FRAME_HEADER_LEN];
    while at < len {
        let sound = if at + FRAME_HEADER_LEN as u64 <= len {
            file.read_exact_at(&mut header, at)?;
            parse_header(&header)
                .ok()
                .filter(|h| at + u64::from(h.frame_len) <= len)
        } else {
            None
        };
        if let Some(header) = sound {
            if let Some(begin) = gap.take() {
                found(Scanned::Gap {
                    at: begin,
                    len: at - begin,
                });
            }
            let frame_len = u64::from(header.frame_len);
            found(Scanned::Frame { at, header });
            at += frame_len;
        } else {
            gap.get_or_insert(at);
            at = next_magic(file, at + 1, len)?;
        }
    }
    if let Some(begin) = gap {
        found(Scanned::Gap {
            at: begin,
            len: len - begin,
        });
    }
    Ok(())
}

/// The next place where a frame may begin, or the end.
fn next_magic(file: &dyn BackingFile, from: u64, len: u64) -> io::Result<u64> {
    let mut buf = vec![0; 1 << 20];
    let mut at = from;
    while at + MAGIC.len() as u64 <= len {
        let want = buf.len().min((len - at) as usize);
        let got = file.read_at(&mut buf[..want], at)?;
        if let Some(position) = buf[..got].windows(MAGIC.len()).position(|w| w == MAGIC) {
            return Ok(at + position as u64);
        }
        if got < MAGIC.len() {
            break;
        }
        at += (got - MAGIC.len() + 1) as u64;
    }
    Ok(len)
}
