//! Splits elements of any width into byte columns, and back; byte-delta.
#![forbid(unsafe_code)]

use crate::transform::kernels;
use crate::transform::word::Scan;

/// Elements per step, so that they stay in the L1 cache.
const STEP: usize = 512;

/// Splits elements of `width` bytes into columns: byte `b` of element `i`
/// goes to `columns[b * n + i]`.
pub(crate) fn shuffle(width: usize, elements: &[u8], columns: &mut [u8]) {
    debug_assert_eq!(elements.len(), columns.len());
    if width == 1 {
        columns.copy_from_slice(elements);
        return;
    }
    let n = elements.len() / width;
    if n == 0 {
        return;
    }
    let mut words = [0u64; STEP];
    let mut split = [0u8; STEP * 8];
    for (step, elements) in elements.chunks(STEP * width).enumerate() {
        let len = elements.len() / width;
        let words = &mut words[..len];
        for at in (0..width).step_by(8) {
            let part = (width - at).min(8);
            for (word, element) in words.iter_mut().zip(elements.chunks_exact(width)) {
                *word = gather(&element[at..at + part]);
            }
            let split = &mut split[..len * 8];
            kernels::split_columns(words, len, 0, split);
            for (b, column) in split.chunks_exact(len).take(part).enumerate() {
                columns[(at + b) * n + step * STEP..][..len].copy_from_slice(column);
            }
        }
    }
}

/// Up to eight bytes as a word.
#[inline(always)]
fn gather(bytes: &[u8]) -> u64 {
    match bytes.first_chunk::<8>() {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => bytes
            .iter()
            .rev()
            .fold(0, |word, &byte| word << 8 | u64::from(byte)),
    }
}

/// Undoes [`shuffle`].
pub(crate) fn unshuffle(width: usize, columns: &[u8], elements: &mut [u8]) {
    debug_assert_eq!(elements.len(), columns.len());
    if width == 1 {
        elements.copy_from_slice(columns);
        return;
    }
    let n = elements.len() / width;
    if n == 0 {
        return;
    }
    let mut words = [0u64; STEP];
    let zeros = [0u8; STEP];
    for (step, elements) in elements.chunks_mut(STEP * width).enumerate() {
        let len = elements.len() / width;
        let words = &mut words[..len];
        for at in (0..width).step_by(8) {
            let part = (width - at).min(8);
            let columns: [&[u8]; 8] = std::array::from_fn(|b| {
                if b < part {
                    &columns[(at + b) * n + step * STEP..][..len]
                } else {
                    &zeros[..len]
                }
            });
            kernels::join_columns(&columns, words);
            for (word, element) in words.iter().zip(elements.chunks_exact_mut(width)) {
                let bytes = word.to_le_bytes();
                match element[at..].first_chunk_mut::<8>() {
                    Some(to) => *to = bytes,
                    None => element[at..].copy_from_slice(&bytes[..part]),
                }
            }
        }
    }
}

/// Each byte less the byte before it.
pub(crate) fn delta(bytes: &[u8], out: &mut [u8]) {
    kernels::byte_delta(bytes, 0, out);
}

/// Undoes [`delta`] in place.
pub(crate) fn undelta(bytes: &mut [u8]) {
    u8::scan::<false>(bytes, &mut 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delta_is_undone() {
        let bytes: Vec<u8> = (0..1003u32)
            .map(|i| (i.wrapping_mul(2_654_435_769) >> 9) as u8)
            .collect();
        let mut work = vec![0; bytes.len()];
        delta(&bytes, &mut work);
        undelta(&mut work);
        assert_eq!(work, bytes);
    }

    #[test]
    fn any_width_is_unshuffled() {
        for width in if cfg!(miri) { 11..13 } else { 1..30 } {
            let bytes: Vec<u8> = (0..width * 1100)
                .map(|i| (i * 7 + (i >> 8)) as u8)
                .collect();
            let mut columns = vec![0; bytes.len()];
            let mut back = vec![0; bytes.len()];
            shuffle(width, &bytes, &mut columns);
            assert_eq!(columns[1100 * (width - 1)], bytes[width - 1]);
            unshuffle(width, &columns, &mut back);
            assert_eq!(back, bytes);
        }
    }
}
