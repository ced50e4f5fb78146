//! Elements to byte-columns and back for any width; byte-delta.
#![forbid(unsafe_code)]

use crate::word::Word;

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
    if let (Some(first), Some(to)) = (bytes.first(), out.first_mut()) {
        *to = *first;
    }
    for (to, pair) in out.iter_mut().skip(1).zip(bytes.windows(2)) {
        *to = pair[1].wrapping_sub(pair[0]);
    }
}

/// Undoes [`delta`] in place.
pub(crate) fn undelta(bytes: &mut [u8]) {
    const EVEN: u64 = 0x00FF_00FF_00FF_00FF;
    const ONES: u64 = 0x0001_0001_0001_0001;
    let mut sum = 0u8;
    let mut words = bytes.chunks_exact_mut(8);
    for word in &mut words {
        // Running sums of the even and of the odd bytes, in lanes wide enough
        // not to overflow, by one multiplication each.
        let x = u64::load(word, false);
        let even = (x & EVEN).wrapping_mul(ONES);
        let odd = ((x >> 8) & EVEN).wrapping_mul(ONES);
        let base = u64::from(sum) * ONES;
        let at_odd = even.wrapping_add(odd).wrapping_add(base) & EVEN;
        let at_even = even.wrapping_add(odd << 16).wrapping_add(base) & EVEN;
        sum = (at_odd >> 48) as u8;
        (at_even | (at_odd << 8)).store(word, false);
    }
    for byte in words.into_remainder() {
        sum = sum.wrapping_add(*byte);
        *byte = sum;
    }
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
