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
//! | 6 | 1 | tail: raw bytes behind the last element |
//! | 7 | 1 | streams per segment |
//! | 8 | 4 | raw bytes per segment (the last may be shorter) |
//! | 12 | 4 | elements per row, 0 if unknown |
//! | 16 | 4 | elements per plane, 0 if unknown |
//! | 20 | 1 | index of the decimal denominator |
//! | 21 | 3 | zero |
#![forbid(unsafe_code)]

use crate::Error;

pub(crate) const RECIPE_LEN: usize = 24;

/// Records longer than this are treated as bytes.
pub(crate) const MAX_WIDTH: usize = 64;

/// What the payload is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Scheme {
    /// The raw bytes.
    Verbatim = 0,
    /// One element, kept in the directory, repeated.
    Constant = 1,
    /// One stream per byte-column.
    Columns = 2,
    /// Prediction residuals as magnitude classes and extra bits.
    Residuals = 3,
}

/// How an element becomes an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum NumberMap {
    /// It does not: its bytes are taken as they lie.
    Bytes = 0,
    /// Its bits.
    Integer = 1,
    /// Its bits, flipped so that integer order is numeric order.
    Ordered = 2,
    /// The integer that gives it back when divided by a round denominator; other
    /// elements are listed as exceptions.
    Decimal = 3,
    /// Its bits as a float, predicted in floating point.
    Real = 4,
}

/// What is subtracted from an integer before it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Predictor {
    /// Nothing.
    None = 0,
    /// The element before.
    Delta = 1,
    /// The element before, by exclusive or.
    Xor = 2,
    /// The element a row before.
    Row = 3,
    /// Lorenzo over two dimensions.
    Plane = 4,
    /// Lorenzo over three dimensions.
    Cube = 5,
    /// Straight line through the two elements before.
    Line = 6,
}

impl Predictor {
    pub(crate) const ALL: [Predictor; 7] = [
        Predictor::None,
        Predictor::Delta,
        Predictor::Xor,
        Predictor::Row,
        Predictor::Plane,
        Predictor::Cube,
        Predictor::Line,
    ];
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
    pub(crate) segment_len: u32,
    pub(crate) row: u32,
    pub(crate) plane: u32,
    pub(crate) scale: u8,
}

impl Recipe {
    /// The bytes as they are, in segments of `segment_len`.
    pub(crate) fn verbatim(segment_len: u32) -> Self {
        Recipe {
            scheme: Scheme::Verbatim,
            width: 1,
            map: NumberMap::Bytes,
            predictor: Predictor::None,
            big_endian: false,
            head: 0,
            tail: 0,
            streams: 0,
            segment_len,
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
        bytes[8..12].copy_from_slice(&self.segment_len.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.row.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.plane.to_le_bytes());
        bytes[20] = self.scale;
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8; RECIPE_LEN]) -> Result<Self, Error> {
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let scheme = match bytes[0] {
            0 => Scheme::Verbatim,
            1 => Scheme::Constant,
            2 => Scheme::Columns,
            3 => Scheme::Residuals,
            _ => return Err(Error::Malformed("unknown scheme")),
        };
        let map = match bytes[2] {
            0 => NumberMap::Bytes,
            1 => NumberMap::Integer,
            2 => NumberMap::Ordered,
            3 => NumberMap::Decimal,
            4 => NumberMap::Real,
            _ => return Err(Error::Malformed("unknown number map")),
        };
        let predictor = Predictor::ALL
            .get(bytes[3] as usize)
            .copied()
            .ok_or(Error::Malformed("unknown predictor"))?;
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
            segment_len: word(8),
            row: word(12),
            plane: word(16),
            scale: bytes[20],
        })
    }
}
