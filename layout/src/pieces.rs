//! Maps bytes to elements.

use std::ops::Range;

use crate::extent::{Coding, Content, LayoutExtent};
use crate::layout::Layout;
use crate::variable::Variable;

/// A range of bytes with one meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
    /// What they are.
    pub meaning: Meaning,
}

impl Piece {
    /// First byte after the piece.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset + self.len
    }

    /// The part of the piece that lies in `range`.
    fn clip(mut self, range: &Range<u64>) -> Self {
        let end = self.end().min(range.end);
        if self.offset < range.start {
            if let Meaning::Elements { skipped, .. } = &mut self.meaning {
                *skipped += range.start - self.offset;
            }
            self.offset = range.start;
        }
        self.len = end.saturating_sub(self.offset);
        self
    }
}

/// The meaning of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Metadata, padding, or not understood.
    Opaque,
    /// Elements of one slab of a variable.
    Elements {
        /// Which variable.
        variable: u32,
        /// Which slab: the record of an interleaved variable, the chunk of a chunked one,
        /// otherwise 0.
        slab: u64,
        /// Bytes of the slab before the piece; not always whole elements.
        skipped: u64,
    },
    /// Elements that went through filters.
    Filtered {
        /// Which variable.
        variable: u32,
        /// The effect of the filters.
        coding: Coding,
    },
}

impl Layout {
    /// The piece that byte `offset` is in, as long as it is: a whole slab, or everything up to
    /// the next extent.
    #[must_use]
    pub fn at(&self, offset: u64) -> Piece {
        self.piece(self.extent_at(offset), offset)
    }

    /// The pieces of `range` in order, covering it without a gap, the first and last clipped to it.
    pub fn pieces(&self, range: Range<u64>) -> Pieces<'_> {
        Pieces {
            layout: self,
            extent: self.extent_at(range.start),
            range,
        }
    }

    /// The first extent that ends after `offset`.
    pub(crate) fn extent_at(&self, offset: u64) -> usize {
        self.extents
            .partition_point(|extent| extent.end() <= offset)
    }

    /// The piece at `offset`, where `number` is the first extent that ends after it.
    fn piece(&self, number: usize, offset: u64) -> Piece {
        match self.extents.get(number) {
            Some(extent) if extent.offset <= offset => inside(extent, offset),
            next => {
                let start = number
                    .checked_sub(1)
                    .and_then(|before| self.extents.get(before))
                    .map_or(0, LayoutExtent::end);
                let end = next.map_or(u64::MAX, |next| next.offset);
                Piece {
                    offset: start,
                    len: end - start,
                    meaning: Meaning::Opaque,
                }
            }
        }
    }

    /// The variable that a meaning names.
    #[must_use]
    pub fn variable_of(&self, meaning: &Meaning) -> Option<&Variable> {
        match meaning {
            Meaning::Opaque => None,
            Meaning::Elements { variable, .. } | Meaning::Filtered { variable, .. } => {
                self.variable(*variable)
            }
        }
    }
}

fn inside(extent: &LayoutExtent, offset: u64) -> Piece {
    let within = offset - extent.offset;
    let elements = |variable, slab, start: u64, len: u64| Piece {
        offset: extent.offset + start,
        len: len.min(extent.len - start),
        meaning: Meaning::Elements {
            variable,
            slab,
            skipped: 0,
        },
    };
    match &extent.content {
        Content::Array { variable } => elements(*variable, 0, 0, extent.len),
        Content::Chunks {
            variable,
            first,
            chunk_len,
        } => {
            let number = within / chunk_len;
            elements(*variable, first + number, number * chunk_len, *chunk_len)
        }
        Content::Filtered { variable, coding } => Piece {
            offset: extent.offset,
            len: extent.len,
            meaning: Meaning::Filtered {
                variable: *variable,
                coding: *coding,
            },
        },
        Content::Records { stride, fields } => {
            let record = within / stride;
            let within = within % stride;
            let number = fields.partition_point(|field| field.offset + field.len <= within);
            match fields.get(number) {
                Some(field) if field.offset <= within => elements(
                    field.variable,
                    record,
                    record * stride + field.offset,
                    field.len,
                ),
                next => {
                    let start = number
                        .checked_sub(1)
                        .and_then(|before| fields.get(before))
                        .map_or(0, |field| field.offset + field.len);
                    let end = next.map_or(*stride, |field| field.offset);
                    let start = record * stride + start;
                    let end = (record * stride).saturating_add(end).min(extent.len);
                    Piece {
                        offset: extent.offset + start,
                        len: end - start,
                        meaning: Meaning::Opaque,
                    }
                }
            }
        }
    }
}

/// Iterator over the pieces of a range.
#[derive(Clone, Debug)]
pub struct Pieces<'a> {
    layout: &'a Layout,
    extent: usize,
    range: Range<u64>,
}

impl Iterator for Pieces<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        if self.range.start >= self.range.end {
            return None;
        }
        let piece = self
            .layout
            .piece(self.extent, self.range.start)
            .clip(&self.range);
        self.range.start = piece.end();
        while let Some(extent) = self.layout.extents.get(self.extent)
            && extent.end() <= self.range.start
        {
            self.extent += 1;
        }
        Some(piece)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::extent::RecordField;
    use crate::{ByteOrder, Element, ElementKind};

    fn variable(kind: ElementKind, width: u32, shape: &[u64]) -> Variable {
        Variable {
            path: String::new(),
            element: Element {
                kind,
                width,
                order: ByteOrder::Big,
            },
            shape: shape.to_vec(),
            chunk: None,
            fill: None,
            filters: Vec::new(),
            shuffle: None,
            record: false,
            interleaved: false,
        }
    }

    fn layout(variables: Vec<Variable>, extents: Vec<(u64, u64, Content)>) -> Layout {
        Layout {
            format: None,
            file_len: 4000,
            variables,
            extents: extents
                .into_iter()
                .map(|(offset, len, content)| LayoutExtent {
                    offset,
                    len,
                    content,
                })
                .collect(),
            parsed: crate::ranges::Ranges::default(),
            problem: None,
            follows_len: false,
            marked_open: false,
        }
    }

    /// An array, a gap, chunks, filtered chunks, nothing.
    pub(crate) fn mixed() -> Layout {
        let chunked = Variable {
            chunk: Some(vec![10, 10]),
            ..variable(ElementKind::Int, 2, &[25, 20])
        };
        layout(
            vec![
                variable(ElementKind::Float, 4, &[25, 10]),
                chunked.clone(),
                chunked,
            ],
            vec![
                (100, 1000, Content::Array { variable: 0 }),
                (
                    1200,
                    1200,
                    Content::Chunks {
                        variable: 1,
                        first: 0,
                        chunk_len: 200,
                    },
                ),
                (
                    2400,
                    600,
                    Content::Filtered {
                        variable: 2,
                        coding: Coding::Compressed,
                    },
                ),
            ],
        )
    }

    /// Records of 20 bytes, of which 18 are used; the last one is truncated.
    pub(crate) fn records() -> Layout {
        let slabs = |kind, width, inner| Variable {
            record: true,
            interleaved: true,
            ..variable(kind, width, &[175, inner])
        };
        let field = |offset, len, variable| RecordField {
            offset,
            len,
            variable,
        };
        layout(
            vec![
                slabs(ElementKind::Float, 4, 3),
                slabs(ElementKind::Int, 2, 3),
            ],
            vec![(
                40,
                3495,
                Content::Records {
                    stride: 20,
                    fields: [field(0, 12, 0), field(12, 6, 1)].into(),
                },
            )],
        )
    }

    #[test]
    fn pieces_cover_any_range_and_agree_with_single_look_ups() {
        for layout in [mixed(), records()] {
            for start in 0..3600 {
                for len in [0, 1, 7, 333] {
                    let mut at = start;
                    for piece in layout.pieces(start..start + len) {
                        assert_eq!(piece.offset, at);
                        assert!(piece.len > 0);
                        let whole = layout.at(at);
                        assert!(whole.offset <= at && piece.end() <= whole.end());
                        if let Meaning::Elements {
                            variable,
                            slab,
                            skipped,
                        } = piece.meaning
                        {
                            assert_eq!(skipped, at - whole.offset);
                            assert_eq!(
                                whole.meaning,
                                Meaning::Elements {
                                    variable,
                                    slab,
                                    skipped: 0
                                }
                            );
                        } else {
                            assert_eq!(whole.meaning, piece.meaning);
                        }
                        at = piece.end();
                    }
                    assert_eq!(at, start + len);
                }
            }
        }
    }

    #[test]
    fn a_byte_of_a_record_is_found_without_walking_there() {
        let layout = records();
        let piece = layout.at(40 + 170 * 20 + 13);
        assert_eq!((piece.offset, piece.len), (40 + 170 * 20 + 12, 6));
        assert_eq!(
            piece.meaning,
            Meaning::Elements {
                variable: 1,
                slab: 170,
                skipped: 0
            }
        );
        // Padding, and the truncated last record.
        assert_eq!(layout.at(40 + 19).meaning, Meaning::Opaque);
        let last = layout.at(40 + 3494);
        assert_eq!((last.offset, last.len), (40 + 174 * 20 + 12, 3));
        assert_eq!(layout.at(40 + 3495).meaning, Meaning::Opaque);
    }

    #[test]
    fn blocks_tell_where_a_variable_lies() {
        let layout = mixed();
        let origins: Vec<_> = layout.blocks(1).map(|block| block.origin).collect();
        assert_eq!(
            origins,
            [[0, 0], [0, 10], [10, 0], [10, 10], [20, 0], [20, 10]]
        );
        assert_eq!(layout.blocks(2).count(), 0);
        let layout = records();
        let block = layout.blocks(1).next().unwrap();
        assert_eq!((block.offset, block.len), (52, 6));
        assert_eq!((block.slabs, block.stride), (175, 20));
        assert_eq!(block.shape, [175, 3]);
    }
}
