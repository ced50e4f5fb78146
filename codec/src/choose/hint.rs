//! The caller's knowledge of a chunk.
#![forbid(unsafe_code)]

/// How the bits of an element are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ElementKind {
    /// IEEE 754 binary floating point.
    Float,
    /// Two's complement integer.
    Int,
    /// Unsigned integer.
    Uint,
    /// Bytes without a number in them: records, strings.
    Opaque,
}

/// Which end of an element comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Least significant byte first.
    Little,
    /// Most significant byte first, as in NetCDF classic.
    Big,
}

/// What is known about a chunk. A wrong hint costs density, never correctness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hint<'a> {
    /// Nothing: the encoder finds the element width itself.
    Unknown,
    /// Elements of one type from the first byte on.
    Elements {
        /// Bytes per element.
        width: usize,
        /// What an element is.
        kind: ElementKind,
        /// Its byte order.
        order: ByteOrder,
    },
    /// A whole box of an N-dimensional array.
    Array {
        /// Bytes per element.
        width: usize,
        /// What an element is.
        kind: ElementKind,
        /// Its byte order.
        order: ByteOrder,
        /// Extents, the fastest-varying last. If they do not multiply up to
        /// the chunk's length, only the row and plane lengths are used.
        shape: &'a [usize],
    },
}
