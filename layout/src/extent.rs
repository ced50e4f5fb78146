//! Where variables lie.

use serde::Serialize;

/// A range of the file whose meaning is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LayoutExtent {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
    /// What they are.
    #[serde(flatten)]
    pub content: Content,
}

impl LayoutExtent {
    /// First byte after the extent.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset + self.len
    }

    /// Memory that the extent takes besides itself.
    pub(crate) fn fields_memory(&self) -> usize {
        match &self.content {
            Content::Records { fields, .. } => size_of_val(&**fields),
            _ => 0,
        }
    }
}

/// The contents of an extent. Variables are given by their place in the list of variables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "content")]
pub enum Content {
    /// A whole variable in row-major order.
    Array {
        /// Which variable.
        variable: u32,
    },
    /// Whole chunks of a variable, back to back, plain.
    Chunks {
        /// Which variable.
        variable: u32,
        /// Number of the first chunk, in row-major order over the grid of chunks; the others
        /// follow it.
        first: u64,
        /// Bytes of a chunk.
        chunk_len: u64,
    },
    /// Chunks of a variable that went through filters.
    Filtered {
        /// Which variable.
        variable: u32,
        /// The effect of the filters.
        coding: Coding,
    },
    /// Records: the slabs of several variables, interleaved.
    Records {
        /// Bytes from a record to the next.
        stride: u64,
        /// Where the slabs lie in each record; sorted, disjoint.
        fields: Box<[RecordField]>,
    },
}

/// The slab of one variable in each record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct RecordField {
    /// First byte, from the start of the record.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
    /// Which variable.
    pub variable: u32,
}

/// The effect of filters on bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Coding {
    /// Nothing: the elements are plain.
    Plain,
    /// They were rearranged, not compressed.
    Rearranged,
    /// They were compressed.
    Compressed,
}
