//! Elements to byte-columns and back; byte-delta.
#![forbid(unsafe_code)]

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
    for (b, column) in columns.chunks_exact_mut(n).enumerate() {
        for (to, element) in column.iter_mut().zip(elements.chunks_exact(width)) {
            *to = element[b];
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
    for (b, column) in columns.chunks_exact(n).enumerate() {
        for (from, element) in column.iter().zip(elements.chunks_exact_mut(width)) {
            element[b] = *from;
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
    let mut sum = 0u8;
    for byte in bytes {
        sum = sum.wrapping_add(*byte);
        *byte = sum;
    }
}
