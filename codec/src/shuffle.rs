//! Elements to byte-columns and back for any width; byte-delta.
#![forbid(unsafe_code)]

use crate::simd::{self, Scan};

/// Elements per step, so that they stay in the innermost cache.
const BLOCK: usize = 512;

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
    for (block, elements) in elements.chunks(BLOCK * width).enumerate() {
        for (b, column) in columns.chunks_exact_mut(n).enumerate() {
            for (to, element) in column[block * BLOCK..]
                .iter_mut()
                .zip(elements.chunks_exact(width))
            {
                *to = element[b];
            }
        }
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
    for (block, elements) in elements.chunks_mut(BLOCK * width).enumerate() {
        for (b, column) in columns.chunks_exact(n).enumerate() {
            for (from, element) in column[block * BLOCK..]
                .iter()
                .zip(elements.chunks_exact_mut(width))
            {
                element[b] = *from;
            }
        }
    }
}

/// Each byte less the byte before it.
pub(crate) fn delta(bytes: &[u8], out: &mut [u8]) {
    simd::byte_delta(bytes, 0, out);
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
        for width in 1..30 {
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
