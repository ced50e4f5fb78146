//! The result of a parse.

use std::ops::Range;

use serde::Serialize;

use crate::error::Error;
use crate::extent::{Content, LayoutExtent};
use crate::format::Format;
use crate::ranges::Ranges;
use crate::variable::Variable;

/// The meaning of the bytes of a file.
///
/// Bytes that no extent covers are opaque. The layout is advice: bytes that mean something else
/// are still bytes, and nothing that stores or returns them may depend on it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Layout {
    pub(crate) format: Option<Format>,
    pub(crate) file_len: u64,
    pub(crate) variables: Vec<Variable>,
    pub(crate) extents: Vec<LayoutExtent>,
    pub(crate) parsed: Ranges,
    pub(crate) problem: Option<Error>,
    /// Whether another length of the file would have given another layout.
    pub(crate) follows_len: bool,
    pub(crate) marked_open: bool,
}

impl Layout {
    /// The format, if it is one that is understood.
    #[must_use]
    pub fn format(&self) -> Option<Format> {
        self.format
    }

    /// Length of the file when it was parsed.
    #[must_use]
    pub fn file_len(&self) -> u64 {
        self.file_len
    }

    /// All variables, those without extents included.
    #[must_use]
    pub fn variables(&self) -> &[Variable] {
        &self.variables
    }

    /// The variable of this number.
    #[must_use]
    pub fn variable(&self, number: u32) -> Option<&Variable> {
        self.variables.get(number as usize)
    }

    /// Where the variables lie; sorted, disjoint, none empty.
    #[must_use]
    pub fn extents(&self) -> &[LayoutExtent] {
        &self.extents
    }

    /// The bytes that the parser read.
    #[must_use]
    pub fn parsed(&self) -> &Ranges {
        &self.parsed
    }

    /// Why there is no layout, or only a part of it. Extents found before the problem are good.
    #[must_use]
    pub fn problem(&self) -> Option<&Error> {
        self.problem.as_ref()
    }

    /// Whether the file itself says that a writer has it open, as HDF5 does from version 2 of
    /// its superblock on: its contents may then be inconsistent.
    #[must_use]
    pub fn is_marked_open(&self) -> bool {
        self.marked_open
    }

    /// Whether a write of `range`, after which the file has `len` bytes, may have changed the
    /// layout, so that it is worth parsing again. For a truncation, pass the range after the new
    /// end.
    #[must_use]
    pub fn is_stale_after(&self, range: &Range<u64>, len: u64) -> bool {
        self.parsed.touches(range) || (self.follows_len && len != self.file_len)
    }

    /// Approximate memory that the layout takes, for caches.
    #[must_use]
    pub fn memory(&self) -> usize {
        let variables: usize = self.variables.iter().map(Variable::memory).sum();
        let fields: usize = self.extents.iter().map(LayoutExtent::fields_memory).sum();
        let extents = size_of_val(self.extents.as_slice());
        size_of::<Self>() + variables + extents + fields + self.parsed.memory()
    }

    /// How many bytes are elements of a variable, plain or filtered.
    #[must_use]
    pub fn understood_bytes(&self) -> u64 {
        let in_extent = |extent: &LayoutExtent| match &extent.content {
            Content::Records { stride, fields } => {
                let whole = extent.len / stride;
                let rest = extent.len % stride;
                fields.iter().fold(0u64, |sum, field| {
                    let tail = rest.saturating_sub(field.offset).min(field.len);
                    sum.saturating_add(field.len.saturating_mul(whole))
                        .saturating_add(tail)
                })
            }
            _ => extent.len,
        };
        self.extents.iter().map(in_extent).sum()
    }

    /// The blocks that `variable` consists of, in the order of the file; those that went
    /// through filters are not among them.
    pub fn blocks(&self, variable: u32) -> impl Iterator<Item = VariableBlock> + '_ {
        self.extents
            .iter()
            .flat_map(move |extent| self.blocks_of(extent, variable))
    }

    fn blocks_of(&self, extent: &LayoutExtent, variable: u32) -> VariableBlocks<'_> {
        let known = self.variable(variable);
        let nothing = VariableBlocks::One(None);
        let Some(known) = known else { return nothing };
        match &extent.content {
            Content::Array { variable: held } if *held == variable => {
                VariableBlocks::One(Some(VariableBlock {
                    offset: extent.offset,
                    len: extent.len,
                    slabs: 1,
                    stride: extent.len,
                    origin: vec![0; known.shape.len()],
                    shape: known.shape.clone(),
                }))
            }
            Content::Chunks {
                variable: held,
                first,
                chunk_len,
            } if *held == variable => VariableBlocks::Chunks {
                variable: known,
                offset: extent.offset,
                end: extent.end(),
                chunk_len: *chunk_len,
                number: *first,
            },
            Content::Records { stride, fields } => {
                let Some(field) = fields.iter().find(|field| field.variable == variable) else {
                    return nothing;
                };
                let room = extent.len.saturating_sub(field.offset);
                let slabs = room.div_ceil(*stride);
                let mut shape = known.shape.clone();
                if let Some(slowest) = shape.first_mut() {
                    *slowest = slabs;
                }
                VariableBlocks::One((slabs > 0).then(|| VariableBlock {
                    offset: extent.offset + field.offset,
                    len: field.len,
                    slabs,
                    stride: *stride,
                    origin: vec![0; shape.len()],
                    shape,
                }))
            }
            _ => nothing,
        }
    }
}

/// A box in the index space of a variable, and where its elements lie: `slabs` pieces of `len`
/// bytes, one `stride` after the other, each of them row-major and together the box in
/// row-major order. The end of the file may truncate the last one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariableBlock {
    /// First byte of the first slab.
    pub offset: u64,
    /// Bytes of a slab.
    pub len: u64,
    /// Number of slabs: the records of an interleaved variable, otherwise one.
    pub slabs: u64,
    /// Bytes from the start of a slab to the start of the next.
    pub stride: u64,
    /// Index of the first element.
    pub origin: Vec<u64>,
    /// Extents of the box. A chunk at the edge extends beyond the variable: its elements there
    /// are in the file but unused.
    pub shape: Vec<u64>,
}

enum VariableBlocks<'a> {
    One(Option<VariableBlock>),
    Chunks {
        variable: &'a Variable,
        offset: u64,
        end: u64,
        chunk_len: u64,
        number: u64,
    },
}

impl Iterator for VariableBlocks<'_> {
    type Item = VariableBlock;

    fn next(&mut self) -> Option<VariableBlock> {
        match self {
            Self::One(block) => block.take(),
            Self::Chunks {
                variable,
                offset,
                end,
                chunk_len,
                number,
            } => {
                if offset >= end {
                    return None;
                }
                let block = VariableBlock {
                    offset: *offset,
                    len: (*chunk_len).min(*end - *offset),
                    slabs: 1,
                    stride: *chunk_len,
                    origin: variable.chunk_origin(*number)?,
                    shape: variable.chunk.clone()?,
                };
                *offset = offset.checked_add(*chunk_len)?;
                *number += 1;
                Some(block)
            }
        }
    }
}
