//! Runs of one byte, found at the speed of memory.
#![forbid(unsafe_code)]

/// How many of the first bytes equal `byte`.
pub(crate) fn leading(bytes: &[u8], byte: u8) -> usize {
    let pattern = u64::from_ne_bytes([byte; 8]);
    // Large steps first, then small ones: runs are either long or short.
    let (pieces, _) = bytes.as_chunks::<64>();
    let far = pieces
        .iter()
        .take_while(|piece| is_filled(piece, pattern))
        .count()
        * 64;
    let (words, _) = bytes[far..].as_chunks::<8>();
    let near = words
        .iter()
        .take_while(|word| u64::from_ne_bytes(**word) == pattern)
        .count()
        * 8;
    let done = far + near;
    done + bytes[done..].iter().take_while(|b| **b == byte).count()
}

/// Whether a piece consists of the pattern only.
#[inline(always)]
pub(crate) fn is_filled(piece: &[u8; 64], pattern: u64) -> bool {
    let (words, _) = piece.as_chunks::<8>();
    u64::from_ne_bytes(words[0]) == pattern
        && words
            .iter()
            .fold(0, |odd, word| odd | (u64::from_ne_bytes(*word) ^ pattern))
            == 0
}
