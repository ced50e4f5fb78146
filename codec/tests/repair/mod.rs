//! Corrects the checksums of a damaged frame, so that the damage reaches the decoders behind them.

use twox_hash::XxHash3_64;

fn word(frame: &[u8], at: usize) -> usize {
    frame
        .get(at..at + 4)
        .map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize)
}

/// Repairs magic, lengths and every checksum but those of the raw data.
pub(crate) fn repair(frame: &mut [u8]) {
    let len = frame.len();
    if len < 64 + 24 {
        return;
    }
    frame[..10].copy_from_slice(&[0xF5, b'S', b'H', b'L', b'F', b'R', 0x1A, 0xA7, 1, 1]);
    frame[10..12].fill(0);
    let raw_len = word(frame, 12) % (1 << 20);
    frame[12..16].copy_from_slice(&(raw_len as u32).to_le_bytes());
    frame[16..20].copy_from_slice(&(len as u32).to_le_bytes());

    let [head, tail, streams] = [frame[69] as usize, frame[70] as usize, frame[71] as usize];
    let block_len = word(frame, 72).max(1);
    let body = raw_len.saturating_sub(head + tail);
    let blocks = if frame[64] == 1 {
        0
    } else {
        body.div_ceil(block_len)
    };
    let table = 64 + 24 + head + tail;
    let end = table.saturating_add(blocks.saturating_mul(8 + 14 * streams));
    if end > len {
        return;
    }
    frame[20..24].copy_from_slice(&((end - 64) as u32).to_le_bytes());
    let mut payload = end;
    let mut at = table;
    for block in 0..blocks {
        at += 8;
        if streams == 0 {
            let stored = block_len.min(body - block * block_len);
            if let Some(bytes) = frame.get(payload..payload + stored) {
                let hash = XxHash3_64::oneshot(bytes);
                frame[at - 8..at].copy_from_slice(&hash.to_le_bytes());
            }
            payload += stored;
        }
        for _ in 0..streams {
            let stored = word(frame, at + 6);
            if let Some(bytes) = frame.get(payload..payload.saturating_add(stored)) {
                let hash = XxHash3_64::oneshot(bytes) as u32;
                frame[at + 10..at + 14].copy_from_slice(&hash.to_le_bytes());
            }
            payload = payload.saturating_add(stored);
            at += 14;
        }
    }
    let hash = XxHash3_64::oneshot(&frame[64..end]);
    frame[48..56].copy_from_slice(&hash.to_le_bytes());
    let hash = XxHash3_64::oneshot(&frame[..56]);
    frame[56..64].copy_from_slice(&hash.to_le_bytes());
}
