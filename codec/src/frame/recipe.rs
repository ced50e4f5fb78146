//! How a chunk was turned into streams.
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 1 | scheme: 0 verbatim, 1 constant, 2 columns, 3 residuals |
//! | 1 | 1 | element width in bytes |
//! | 2 | 1 | number map: 0 bytes, 1 integer, 2 ordered float, 3 decimal, 4 real |
//! | 3 | 1 | predictor: 0 none, 1 delta, 2 xor, 3 row, 4 plane, 5 cube, 6 line |
//! | 4 | 1 | flags: bit 0 elements are big-endian |
//! | 5 | 1 | head: raw bytes before the first element |
//! | 6 | 1 | tail: raw bytes after the last element |
//! | 7 | 1 | streams per block |
//! | 8 | 4 | raw bytes per block (the last may be shorter) |
//! | 12 | 4 | elements per row, 0 if unknown |
//! | 16 | 4 | elements per plane, 0 if unknown |
//! | 20 | 1 | index of the decimal denominator |
//! | 21 | 3 | zero |
#![forbid(unsafe_code)]

use super::codes::byte_codes;
use crate::error::Error;

pub(crate) const RECIPE_LEN: usize = 24;

/// Records longer than this are treated as bytes.
pub(crate) const MAX_WIDTH: usize = 64;

/// The denominators of decimals, in ascending order; a recipe has the index of
/// one. Powers of two are among them because averages of integers have them.
pub(crate) const DENOMINATORS: [f64; 22] = [
    1.0, 2.0, 4.0, 8.0, 10.0, 16.0, 32.0, 64.0, 100.0, 128.0, 256.0, 512.0, 1e3, 1024.0, 2048.0,
    4096.0, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9,
];

byte_codes! {
    /// The contents of the payload.
    pub(crate) enum Scheme {
        /// The raw bytes.
        Verbatim = 0, "verbatim";
        /// One element, kept in the directory, repeated.
        Constant = 1, "constant";
        /// One stream per byte-column.
        Columns = 2, "columns";
        /// Prediction residuals as magnitude classes and extra bits.
        Residuals = 3, "residuals";
    }
}

byte_codes! {
    /// How an element becomes an integer.
    pub(crate) enum NumberMap {
        /// It does not: its bytes are used in order.
        Bytes = 0, "bytes";
        /// Its bits.
        Integer = 1, "integer";
        /// Its bits, flipped so that integer order is numeric order.
        Ordered = 2, "ordered";
        /// The integer that gives it back when divided by a round denominator; other
        /// elements are listed as exceptions.
        Decimal = 3, "decimal";
        /// Its bits as a float, predicted in floating point.
        Real = 4, "real";
    }
}

byte_codes! {
    /// The prediction that is subtracted from an integer before it is stored.
    pub(crate) enum Predictor {
        /// Nothing.
        None = 0, "none";
        /// The element before.
        Delta = 1, "delta";
        /// The element before, by exclusive or.
        Xor = 2, "xor";
        /// The element a row before.
        Row = 3, "row";
        /// Lorenzo over two dimensions.
        Plane = 4, "plane";
        /// Lorenzo over three dimensions.
        Cube = 5, "cube";
        /// Straight line through the two elements before.
        Line = 6, "line";
    }
}

impl Predictor {
    /// Whether floats can be predicted by it in floating point.
    pub(crate) fn applies_to_floats(self) -> bool {
        matches!(self, Predictor::Line | Predictor::Plane | Predictor::Cube)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Recipe {
    pub(crate) scheme: Scheme,
    pub(crate) width: u8,
    pub(crate) map: NumberMap,
    pub(crate) predictor: Predictor,
    pub(crate) big_endian: bool,
    pub(crate) head: u8,
    pub(crate) tail: u8,
    pub(crate) streams: u8,
    pub(crate) block_len: u32,
    pub(crate) row: u32,
    pub(crate) plane: u32,
    pub(crate) scale: u8,
}

impl Recipe {
    /// The raw bytes, in blocks of `block_len`.
    pub(crate) fn verbatim(block_len: u32) -> Self {
        Recipe {
            scheme: Scheme::Verbatim,
            width: 1,
            map: NumberMap::Bytes,
            predictor: Predictor::None,
            big_endian: false,
            head: 0,
            tail: 0,
            streams: 0,
            block_len,
            row: 0,
            plane: 0,
            scale: 0,
        }
    }

    pub(crate) fn to_bytes(self) -> [u8; RECIPE_LEN] {
        let mut bytes = [0; RECIPE_LEN];
        bytes[0] = self.scheme as u8;
        bytes[1] = self.width;
        bytes[2] = self.map as u8;
        bytes[3] = self.predictor as u8;
        bytes[4] = u8::from(self.big_endian);
        bytes[5] = self.head;
        bytes[6] = self.tail;
        bytes[7] = self.streams;
        bytes[8..12].copy_from_slice(&self.block_len.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.row.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.plane.to_le_bytes());
        bytes[20] = self.scale;
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8; RECIPE_LEN]) -> Result<Self, Error> {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let scheme = Scheme::from_byte(bytes[0]).ok_or(Error::Malformed("unknown scheme"))?;
        let map = NumberMap::from_byte(bytes[2]).ok_or(Error::Malformed("unknown number map"))?;
        let predictor =
            Predictor::from_byte(bytes[3]).ok_or(Error::Malformed("unknown predictor"))?;
        if bytes[4] > 1 || bytes[21..24] != [0, 0, 0] {
            return Err(Error::Malformed("reserved recipe bits are not zero"));
        }
        if bytes[1] == 0 || bytes[1] as usize > MAX_WIDTH {
            return Err(Error::Malformed("impossible element width"));
        }
        Ok(Recipe {
            scheme,
            width: bytes[1],
            map,
            predictor,
            big_endian: bytes[4] == 1,
            head: bytes[5],
            tail: bytes[6],
            streams: bytes[7],
            block_len: word(8),
            row: word(12),
            plane: word(16),
            scale: bytes[20],
        })
    }
}
