//! Unwritten bytes of a chunk: disjoint pieces, later writes win.

use std::collections::BTreeMap;
use std::ops::Range;

/// Pieces of a chunk by their offset in the file. Pieces that touch are one.
#[derive(Debug, Default)]
pub(crate) struct DirtyBytes {
    pieces: BTreeMap<u64, Vec<u8>>,
    bytes: u64,
    /// Memory for the next piece.
    spare: Vec<u8>,
}

impl DirtyBytes {
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.pieces
            .iter()
            .map(|(&offset, piece)| (offset, &piece[..]))
    }

    /// Gives memory for the next piece.
    pub(crate) fn lend(&mut self, buffer: Vec<u8>) {
        self.spare = buffer;
    }

    /// Whether one piece covers all of a range.
    pub(crate) fn covers(&self, range: &Range<u64>) -> bool {
        self.pieces
            .range(..=range.start)
            .next_back()
            .is_some_and(|(&offset, piece)| offset + piece.len() as u64 >= range.end)
    }

    /// Lays `data` over the existing bytes. `room` is how far the piece may be expected to grow.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8], room: usize) {
        let end = offset + data.len() as u64;
        if let Some((&start, piece)) = self.pieces.range_mut(..=offset).next_back() {
            let piece_end = start + piece.len() as u64;
            if piece_end >= end {
                let at = (offset - start) as usize;
                piece[at..at + data.len()].copy_from_slice(data);
                return;
            }
            if piece_end >= offset {
                self.bytes -= piece_end - offset;
                piece.truncate((offset - start) as usize);
                grow(piece, data, room);
                self.bytes += data.len() as u64;
                self.swallow(start..end, room);
                return;
            }
        }
        let mut piece = std::mem::take(&mut self.spare);
        grow(&mut piece, data, room);
        self.bytes += data.len() as u64;
        let hidden = self.hidden_by(&(offset..end));
        let tail = self.take_hidden(&hidden, end);
        self.insert_grown(offset, piece, tail, room);
    }

    /// After a piece has grown to cover `range`: merges the pieces that it now overlaps or touches.
    fn swallow(&mut self, range: Range<u64>, room: usize) {
        let mut hidden = self.hidden_by(&range);
        let Range { start, end } = range;
        hidden.retain(|&offset| offset != start);
        let tail = self.take_hidden(&hidden, end);
        if let Some(piece) = self.pieces.remove(&start) {
            self.insert_grown(start, piece, tail, room);
        }
    }

    /// Offsets of the pieces that begin in a range or touch its end.
    fn hidden_by(&self, range: &Range<u64>) -> Vec<u64> {
        self.pieces
            .range(range.start..=range.end)
            .map(|(&offset, _)| offset)
            .collect()
    }

    /// Removes pieces and returns the parts beyond `end`.
    fn take_hidden(&mut self, hidden: &[u64], end: u64) -> Vec<u8> {
        let mut tail = Vec::new();
        for &offset in hidden {
            let Some(mut piece) = self.pieces.remove(&offset) else {
                continue;
            };
            self.bytes -= piece.len() as u64;
            let covered = (end - offset) as usize;
            if piece.len() > covered {
                tail = piece.split_off(covered);
            }
        }
        tail
    }

    fn insert_grown(&mut self, offset: u64, mut piece: Vec<u8>, tail: Vec<u8>, room: usize) {
        if !tail.is_empty() {
            self.bytes += tail.len() as u64;
            grow(&mut piece, &tail, room);
        }
        self.pieces.insert(offset, piece);
    }

    /// Drops the bytes in a range.
    pub(crate) fn remove(&mut self, range: Range<u64>) {
        let Range { start, end } = range;
        let touched: Vec<u64> = {
            let first = self
                .pieces
                .range(..=start)
                .next_back()
                .map_or(start, |(&o, _)| o);
            self.pieces
                .range(first..end.max(first))
                .map(|(&offset, _)| offset)
                .collect()
        };
        for offset in touched {
            let Some(mut piece) = self.pieces.remove(&offset) else {
                continue;
            };
            let piece_end = offset + piece.len() as u64;
            if piece_end <= start || offset >= end {
                self.pieces.insert(offset, piece);
                continue;
            }
            self.bytes -= piece.len() as u64;
            if piece_end > end {
                let tail = piece.split_off((end - offset) as usize);
                self.bytes += tail.len() as u64;
                self.pieces.insert(end, tail);
            }
            if offset < start {
                piece.truncate((start - offset) as usize);
                self.bytes += piece.len() as u64;
                self.pieces.insert(offset, piece);
            }
        }
    }

    /// Copies the bytes into `out`, which stands for the file from `start` on, and reports each
    /// range that was filled.
    pub(crate) fn copy_to(&self, start: u64, out: &mut [u8], mut filled: impl FnMut(Range<u64>)) {
        let end = start + out.len() as u64;
        let first = self
            .pieces
            .range(..=start)
            .next_back()
            .map_or(start, |(&o, _)| o);
        for (&offset, piece) in self.pieces.range(first..end.max(first)) {
            let from = offset.max(start);
            let to = (offset + piece.len() as u64).min(end);
            if from < to {
                out[(from - start) as usize..(to - start) as usize]
                    .copy_from_slice(&piece[(from - offset) as usize..(to - offset) as usize]);
                filled(from..to);
            }
        }
    }

    /// The bytes, if they are one piece.
    pub(crate) fn into_single(mut self) -> Option<Vec<u8>> {
        if self.pieces.len() != 1 {
            return None;
        }
        let (_, piece) = self.pieces.pop_first()?;
        Some(piece)
    }

    /// Puts older bytes below these: existing bytes stay, gaps are filled.
    pub(crate) fn fill_below(&mut self, older: &Self, room: usize) {
        let mut merged = Self::default();
        for (offset, piece) in older.iter() {
            merged.write(offset, piece, room);
        }
        for (offset, piece) in self.iter() {
            merged.write(offset, piece, room);
        }
        *self = merged;
    }
}

/// Whether a write looks like the beginning of a stream.
pub(crate) fn is_stream(data: &[u8]) -> bool {
    data.len() >= 64 << 10
}

/// Appends to a piece that is likely to be filled up to `room` bytes.
fn grow(piece: &mut Vec<u8>, data: &[u8], room: usize) {
    let needed = piece.len() + data.len();
    if needed > piece.capacity() {
        let want = if is_stream(data) {
            room
        } else {
            needed.next_power_of_two().min(room)
        };
        piece.reserve_exact(want.max(needed) - piece.len());
    }
    piece.extend_from_slice(data);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Write(u64, Vec<u8>),
        Remove(Range<u64>),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (0u64..200, prop::collection::vec(any::<u8>(), 1..60))
                .prop_map(|(o, d)| Step::Write(o, d)),
            1 => (0u64..260, 0u64..80).prop_map(|(o, l)| Step::Remove(o..o + l)),
        ]
    }

    proptest! {
        #[test]
        fn pieces_answer_like_an_array(steps in prop::collection::vec(step(), 1..40)) {
            let mut dirty = DirtyBytes::default();
            let mut model: Vec<Option<u8>> = vec![None; 400];
            for step in &steps {
                match step {
                    Step::Write(offset, data) => {
                        dirty.write(*offset, data, 256);
                        for (i, b) in data.iter().enumerate() {
                            model[*offset as usize + i] = Some(*b);
                        }
                    }
                    Step::Remove(range) => {
                        dirty.remove(range.clone());
                        for slot in &mut model[range.start as usize..range.end as usize] {
                            *slot = None;
                        }
                    }
                }
                let count = model.iter().flatten().count() as u64;
                prop_assert_eq!(dirty.bytes(), count);
                let mut out = vec![0; 300];
                let mut seen = vec![false; 300];
                dirty.copy_to(50, &mut out, |range| {
                    for i in range { seen[(i - 50) as usize] = true; }
                });
                for i in 0..300 {
                    prop_assert_eq!(seen[i].then_some(out[i]), model[i + 50]);
                }
            }
        }

        #[test]
        fn older_bytes_fill_only_the_gaps(
            old in prop::collection::vec((0u64..100, prop::collection::vec(any::<u8>(), 1..30)), 0..6),
            new in prop::collection::vec((0u64..100, prop::collection::vec(any::<u8>(), 1..30)), 0..6),
        ) {
            let mut below = DirtyBytes::default();
            let mut above = DirtyBytes::default();
            let mut model = vec![0u8; 160];
            for (offset, data) in &old {
                below.write(*offset, data, 64);
                model[*offset as usize..*offset as usize + data.len()].copy_from_slice(data);
            }
            for (offset, data) in &new {
                above.write(*offset, data, 64);
                model[*offset as usize..*offset as usize + data.len()].copy_from_slice(data);
            }
            above.fill_below(&below, 64);
            let mut out = vec![0; 160];
            above.copy_to(0, &mut out, |_| {});
            prop_assert_eq!(out, model);
        }
    }
}
