//! Counts the bytes of a range by variable, without visiting every element.

use std::ops::Range;

use crate::extent::{Content, RecordField};
use crate::layout::Layout;

impl Layout {
    /// Calls `add` with each variable in `range`, or none, and its number of bytes. A variable may
    /// come up several times; all numbers together are the length of the range. Returns how many
    /// steps that took: one for each extent or field in the range, however often a record
    /// repeats it.
    pub fn shares(&self, range: Range<u64>, mut add: impl FnMut(Option<u32>, u64)) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let mut steps = 1;
        let mut at = range.start;
        let extents = self.extents.get(self.extent_at(at)..).unwrap_or_default();
        for extent in extents {
            if extent.offset >= range.end {
                break;
            }
            steps += 1;
            let start = extent.offset.max(range.start);
            let end = extent.end().min(range.end);
            if start > at {
                add(None, start - at);
            }
            at = end;
            match &extent.content {
                Content::Array { variable }
                | Content::Chunks { variable, .. }
                | Content::Filtered { variable, .. } => add(Some(*variable), end - start),
                Content::Records { stride, fields } => {
                    let within = start - extent.offset..end - extent.offset;
                    steps += records(within, *stride, fields, &mut add);
                }
            }
        }
        if at < range.end {
            add(None, range.end - at);
        }
        steps
    }
}

/// The shares of a range within records.
fn records(
    range: Range<u64>,
    stride: u64,
    fields: &[RecordField],
    add: &mut impl FnMut(Option<u32>, u64),
) -> u64 {
    let stride = stride.max(1);
    let fields = if range.end - range.start >= stride {
        fields
    } else {
        // Less than a record: only nearby fields. The range may cross into the next record.
        let (from, to) = (range.start % stride, (range.end - 1) % stride);
        if from <= to {
            let first = fields.partition_point(|field| field.offset + field.len <= from);
            let behind = fields.partition_point(|field| field.offset <= to);
            fields.get(first..behind).unwrap_or_default()
        } else {
            fields
        }
    };
    let mut rest = range.end - range.start;
    for field in fields {
        let bytes = before(range.end, stride, field) - before(range.start, stride, field);
        if bytes > 0 {
            add(Some(field.variable), bytes);
            rest = rest.saturating_sub(bytes);
        }
    }
    if rest > 0 {
        add(None, rest);
    }
    fields.len() as u64
}

/// Bytes of a field in the first `len` bytes of the records.
fn before(len: u64, stride: u64, field: &RecordField) -> u64 {
    let whole = (len / stride).saturating_mul(field.len);
    whole.saturating_add((len % stride).saturating_sub(field.offset).min(field.len))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::Meaning;
    use crate::pieces::tests::{mixed, records as of_records};

    fn by_pieces(layout: &Layout, range: Range<u64>) -> BTreeMap<Option<u32>, u64> {
        let mut all = BTreeMap::new();
        for piece in layout.pieces(range) {
            let variable = match piece.meaning {
                Meaning::Opaque => None,
                Meaning::Elements { variable, .. } | Meaning::Filtered { variable, .. } => {
                    Some(variable)
                }
            };
            *all.entry(variable).or_default() += piece.len;
        }
        all
    }

    #[test]
    fn shares_are_what_the_pieces_add_up_to() {
        for layout in [mixed(), of_records()] {
            for start in 0..3700 {
                for len in [0, 1, 7, 19, 20, 21, 333, 4000] {
                    let range = start..start + len;
                    let mut all = BTreeMap::new();
                    layout.shares(range.clone(), |variable, bytes| {
                        *all.entry(variable).or_default() += bytes;
                    });
                    assert_eq!(all, by_pieces(&layout, range));
                }
            }
        }
    }

    #[test]
    fn a_million_tiny_records_take_one_step_for_each_field() {
        let mut layout = of_records();
        let fields = [0u64, 4].map(|offset| RecordField {
            offset,
            len: 4,
            variable: (offset / 4) as u32,
        });
        layout.extents = vec![crate::LayoutExtent {
            offset: 0,
            len: 8 << 20,
            content: Content::Records {
                stride: 8,
                fields: fields.into(),
            },
        }];
        let mut sum = [0; 2];
        let steps = layout.shares(0..8 << 20, |variable, bytes| {
            sum[variable.unwrap() as usize] += bytes;
        });
        assert_eq!(sum, [4 << 20; 2]);
        assert!(steps < 10, "{steps}");
    }
}
