//! Variables and their elements.

use serde::Serialize;

use crate::reader::GROWTH;

/// How the bits of an element are to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ElementKind {
    /// Two's complement integer.
    Int,
    /// Unsigned integer, bit field.
    Uint,
    /// Binary floating point.
    Float,
    /// Text of fixed length.
    Char,
    /// Compound types, references, and anything else with a size that is not a number.
    Opaque,
}

/// Which end of an element comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ByteOrder {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

/// The type of the elements of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Element {
    /// How to read one.
    pub kind: ElementKind,
    /// Bytes of one.
    pub width: u32,
    /// Its byte order; little where it does not matter.
    pub order: ByteOrder,
}

/// An N-dimensional array of elements of one type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Variable {
    /// Name, with its groups: `group/name`.
    #[serde(rename = "name")]
    pub path: String,
    /// The type of its elements.
    #[serde(flatten)]
    pub element: Element,
    /// Extents, the fastest-varying last. Dimensions that an element's type adds (HDF5 array
    /// types, complex numbers) come last.
    pub shape: Vec<u64>,
    /// Shape of a chunk where the variable is stored in chunks.
    pub chunk: Option<Vec<u64>>,
    /// The fill value, in the file's byte order.
    pub fill: Option<Vec<u8>>,
    /// Filters that its chunks pass through, in the order of writing.
    pub filters: Vec<String>,
    /// Bytes of an element as the shuffle filter sees it.
    #[serde(skip)]
    pub shuffle: Option<u32>,
    /// Whether it grows along its slowest dimension.
    pub record: bool,
    /// Whether its slowest dimension is strided through the file, one slab per record.
    pub interleaved: bool,
}

impl Element {
    /// The type for users: `float32`, `int16 big`, `char[8]`.
    #[must_use]
    pub fn name(&self) -> String {
        let bits = u64::from(self.width) * 8;
        let name = match self.kind {
            ElementKind::Int => format!("int{bits}"),
            ElementKind::Uint => format!("uint{bits}"),
            ElementKind::Float => format!("float{bits}"),
            ElementKind::Char => format!("char[{}]", self.width),
            ElementKind::Opaque => format!("opaque[{}]", self.width),
        };
        match (self.order, self.width) {
            (ByteOrder::Big, 2..) if self.kind != ElementKind::Char => format!("{name} big"),
            _ => name,
        }
    }
}

/// Extents for users: `41x90x180`, or `scalar`.
#[must_use]
pub fn dimensions(shape: &[u64]) -> String {
    if shape.is_empty() {
        return "scalar".into();
    }
    let extents: Vec<_> = shape.iter().map(u64::to_string).collect();
    extents.join("x")
}

impl Variable {
    /// Shape of the part that lies in the file without a gap: a chunk, the part of a record, or
    /// all.
    #[must_use]
    pub fn slab_shape(&self) -> &[u64] {
        match &self.chunk {
            Some(chunk) => chunk,
            None if self.interleaved => self.shape.get(1..).unwrap_or_default(),
            None => &self.shape,
        }
    }

    /// Bytes of a slab, if that is a number.
    #[must_use]
    pub fn slab_len(&self) -> Option<u64> {
        bytes(self.element.width, self.slab_shape())
    }

    /// Index of the first element of chunk `number`, counted in row-major order over the grid
    /// of chunks that covers the variable.
    #[must_use]
    pub fn chunk_origin(&self, number: u64) -> Option<Vec<u64>> {
        let chunk = self.chunk.as_ref()?;
        let mut left = number;
        let mut origin = vec![0; chunk.len()];
        for ((at, &edge), &extent) in origin.iter_mut().zip(chunk).zip(&self.shape).rev() {
            let along = extent.div_ceil(edge.max(1)).max(1);
            *at = (left % along).checked_mul(edge)?;
            left /= along;
        }
        (left == 0).then_some(origin)
    }

    /// Memory charged for the variable while the list of variables grows.
    pub(crate) fn cost(&self) -> usize {
        self.memory() + (GROWTH - 1) * size_of::<Self>()
    }

    /// Approximate memory that the variable takes.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Self>()
            + self.path.len()
            + 8 * (self.shape.len() + self.chunk.as_ref().map_or(0, Vec::len))
            + self.fill.as_ref().map_or(0, Vec::len)
            + self
                .filters
                .iter()
                .map(|name| name.len() + 24)
                .sum::<usize>()
    }
}

/// Bytes of an array, if that is a number that a file can have.
pub(crate) fn bytes(width: u32, shape: &[u64]) -> Option<u64> {
    let mut product = u64::from(width);
    if shape.contains(&0) {
        return Some(0);
    }
    for &extent in shape {
        product = product.checked_mul(extent)?;
    }
    (product <= i64::MAX as u64).then_some(product)
}
