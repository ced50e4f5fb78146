//! Codes noise with gaps, as in sparse files: long runs of one byte between
//! stretches of uncoded bytes, at the speed of memory both ways.
//!
//! The stream: length of the tokens (4 bytes), tokens, stretches. A token is
//! the length of a stretch, the length of the run behind it (LEB128), and the
//! run's byte.
#![forbid(unsafe_code)]

use crate::error::Error;
use crate::transform::runs::{is_filled, leading};

/// Bytes examined in one step; shorter runs are not found.
const STEP: usize = 64;

/// Whether the first bytes are a run.
pub(crate) fn is_gap(bytes: &[u8]) -> bool {
    bytes
        .first_chunk::<STEP>()
        .is_some_and(|piece| is_filled(piece, u64::from_ne_bytes([piece[0]; 8])))
}

/// Writes the stream to `room` and returns its length, if there is room.
pub(crate) fn encode(bytes: &[u8], tokens: &mut Vec<u8>, room: &mut [u8]) -> Option<usize> {
    tokens.clear();
    let mut kept = 0;
    let next_run = |from: usize| {
        let mut at = from;
        for piece in bytes[from..].chunks_exact(STEP) {
            if is_gap(piece) {
                // The run may have begun before the piece.
                let before = bytes[from..at]
                    .iter()
                    .rev()
                    .take_while(|byte| **byte == piece[0])
                    .count();
                return (at - before, before + leading(&bytes[at..], piece[0]));
            }
            at += STEP;
        }
        (bytes.len(), 0)
    };
    let mut at = 0;
    while at < bytes.len() {
        let (start, len) = next_run(at);
        put(tokens, start - at);
        put(tokens, len);
        tokens.push(bytes.get(start).copied().unwrap_or(0));
        kept += start - at;
        at = start + len;
    }
    let total = 4 + tokens.len() + kept;
    let (head, mut rest) = room.get_mut(..total)?.split_at_mut(4 + tokens.len());
    head[..4].copy_from_slice(&(tokens.len() as u32).to_le_bytes());
    head[4..].copy_from_slice(tokens);
    let mut from = 0;
    let mut left = &tokens[..];
    while let Some((stretch, run, _)) = token(&mut left) {
        let (to, behind) = std::mem::take(&mut rest).split_at_mut_checked(stretch)?;
        to.copy_from_slice(bytes.get(from..from + stretch)?);
        rest = behind;
        from += stretch + run;
    }
    Some(total)
}

/// Fills `out` from a stream.
pub(crate) fn decode(stored: &[u8], mut out: &mut [u8]) -> Result<(), Error> {
    const BAD: Error = Error::Malformed("gaps contradict the stream");
    let (len, rest) = stored.split_first_chunk::<4>().ok_or(BAD)?;
    let (mut tokens, mut kept) = rest
        .split_at_checked(u32::from_le_bytes(*len) as usize)
        .ok_or(BAD)?;
    while !tokens.is_empty() {
        let (stretch, run, byte) = token(&mut tokens).ok_or(BAD)?;
        let from = kept.split_off(..stretch).ok_or(BAD)?;
        out.split_off_mut(..stretch)
            .ok_or(BAD)?
            .copy_from_slice(from);
        out.split_off_mut(..run).ok_or(BAD)?.fill(byte);
    }
    if !out.is_empty() || !kept.is_empty() {
        return Err(BAD);
    }
    Ok(())
}

fn put(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn token(tokens: &mut &[u8]) -> Option<(usize, usize, u8)> {
    let mut number = || {
        let mut value = 0;
        for shift in (0..28).step_by(7) {
            let byte = *tokens.split_off_first()?;
            value |= usize::from(byte & 0x7F) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    };
    let (stretch, run) = (number()?, number()?);
    Some((stretch, run, *tokens.split_off_first()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_at_any_place_come_back() {
        for (start, len) in [
            (0, 64),
            (0, 300),
            (1, 127),
            (63, 65),
            (500, 500),
            (936, 64),
            (700, 128),
        ] {
            let mut bytes: Vec<u8> = (0..1000u32)
                .map(|i| (i.wrapping_mul(2_654_435_769) >> 11) as u8)
                .collect();
            bytes[start..start + len].fill(9);
            let mut room = vec![0; 999];
            let len = encode(&bytes, &mut Vec::new(), &mut room);
            let mut back = vec![0; bytes.len()];
            if let Some(len) = len {
                decode(&room[..len], &mut back).unwrap();
                assert_eq!(back, bytes);
            } else {
                assert!(start > 0);
            }
        }
    }
}
