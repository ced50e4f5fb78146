//! The directory: what is where in the payload.
//!
//! | size | field |
//! |---|---|
//! | 24 | recipe |
//! | head | raw bytes before the first element (for a constant chunk: the element) |
//! | tail | raw bytes behind the last element |
//! | per segment: 8 | XXH3-64 of its raw bytes |
//! | per stream of it: 14 | entry |
//!
//! An entry:
//!
//! | offset | size | field |
//! |---|---|---|
//! | 0 | 1 | coder |
//! | 1 | 1 | filter: 0 none, 1 byte-delta |
//! | 2 | 4 | length decoded |
//! | 6 | 4 | length stored |
//! | 10 | 4 | low half of the XXH3-64 of the stored bytes |
//!
//! A verbatim segment has no stream: its raw bytes are its payload, and the
//! hash of the raw bytes checks them.
#![forbid(unsafe_code)]

use super::header::{FrameHeader, HEADER_LEN};
use super::recipe::{NumberMap, RECIPE_LEN, Recipe, Scheme};
use crate::Error;
use crate::checksum::hash64;
use crate::decimal::SCALES;
use crate::real;
use crate::stream::{Coder, Filter};

pub(crate) const SEGMENT_LEN: usize = 8;
pub(crate) const STREAM_LEN: usize = 14;

/// One stream of one segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamEntry {
    pub(crate) coder: Coder,
    pub(crate) filter: Filter,
    pub(crate) raw_len: u32,
    pub(crate) stored_len: u32,
    pub(crate) check: u32,
}

/// Bytes of a directory, once the number of segments is known.
pub(crate) fn directory_len(recipe: &Recipe, segments: usize) -> usize {
    RECIPE_LEN
        + recipe.head as usize
        + recipe.tail as usize
        + segments * (SEGMENT_LEN + recipe.streams as usize * STREAM_LEN)
}

/// Streams that a segment of a recipe has.
///
/// Columns of bytes: one per column. Columns of numbers: one per column, the
/// errors of decimals, the exceptions. Residuals: classes, extra bits, errors,
/// exceptions.
pub(crate) fn stream_count(recipe: &Recipe) -> usize {
    match (recipe.scheme, recipe.map) {
        (Scheme::Verbatim | Scheme::Constant, _) => 0,
        (Scheme::Columns, NumberMap::Bytes) => recipe.width as usize,
        (Scheme::Columns, _) => recipe.width as usize + 2,
        (Scheme::Residuals, _) => 4,
    }
}

/// Writes a segment's hash at `at`; returns where its first entry goes.
pub(crate) fn put_segment(bytes: &mut [u8], at: usize, hash: u64) -> usize {
    bytes[at..at + 8].copy_from_slice(&hash.to_le_bytes());
    at + SEGMENT_LEN
}

/// Writes an entry at `at`; returns where the next one goes.
pub(crate) fn put_stream(bytes: &mut [u8], at: usize, entry: &StreamEntry) -> usize {
    bytes[at] = entry.coder as u8;
    bytes[at + 1] = entry.filter as u8;
    bytes[at + 2..at + 6].copy_from_slice(&entry.raw_len.to_le_bytes());
    bytes[at + 6..at + 10].copy_from_slice(&entry.stored_len.to_le_bytes());
    bytes[at + 10..at + 14].copy_from_slice(&entry.check.to_le_bytes());
    at + STREAM_LEN
}

/// A checked view of a frame's directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Directory<'a> {
    pub(crate) recipe: Recipe,
    /// Raw bytes before the first element, or the element of a constant chunk.
    pub(crate) head: &'a [u8],
    /// Raw bytes behind the last element.
    pub(crate) tail: &'a [u8],
    /// Everything behind the directory.
    pub(crate) payload: &'a [u8],
    /// Raw bytes between head and tail.
    pub(crate) body_len: usize,
    table: &'a [u8],
}

impl<'a> Directory<'a> {
    /// Checks the directory of `frame`, whose header has been read, and that
    /// its lengths account for every byte of the frame.
    pub(crate) fn parse(header: &FrameHeader, frame: &'a [u8]) -> Result<Self, Error> {
        if frame.len() != header.frame_len as usize {
            return Err(Error::WrongLength {
                expected: header.frame_len as usize,
                found: frame.len(),
            });
        }
        Self::parse_head(header, frame)
    }

    /// The same without the check of the length: the frame may end anywhere behind its
    /// directory. Nothing may be decoded with what this returns.
    pub(crate) fn parse_head(header: &FrameHeader, frame: &'a [u8]) -> Result<Self, Error> {
        let (bytes, payload) = frame
            .get(HEADER_LEN..)
            .and_then(|rest| rest.split_at_checked(header.directory_len as usize))
            .ok_or(Error::Malformed("directory goes beyond the frame"))?;
        let found = hash64(bytes);
        if found != header.directory_hash {
            return Err(Error::Checksum {
                part: "directory",
                expected: header.directory_hash,
                found,
            });
        }
        let (recipe, rest) = bytes
            .split_first_chunk::<RECIPE_LEN>()
            .ok_or(Error::Malformed("directory too short"))?;
        let recipe = Recipe::from_bytes(recipe)?;
        let (head, rest) = rest
            .split_at_checked(recipe.head as usize)
            .ok_or(Error::Malformed("directory too short"))?;
        let (tail, table) = rest
            .split_at_checked(recipe.tail as usize)
            .ok_or(Error::Malformed("directory too short"))?;
        let raw_len = header.raw_len as usize;
        let body_len = if recipe.scheme == Scheme::Constant {
            0
        } else {
            raw_len
                .checked_sub(head.len() + tail.len())
                .ok_or(Error::Malformed("edges longer than the chunk"))?
        };
        let this = Directory {
            recipe,
            head,
            tail,
            payload,
            body_len,
            table,
        };
        this.check()?;
        Ok(this)
    }

    fn check(&self) -> Result<(), Error> {
        let recipe = &self.recipe;
        let width = recipe.width as usize;
        if self.body_len > 0 && recipe.segment_len == 0 {
            return Err(Error::Malformed("segments of no length"));
        }
        if directory_len(recipe, self.segments())
            != RECIPE_LEN + self.head.len() + self.tail.len() + self.table.len()
        {
            return Err(Error::Malformed(
                "directory length does not match its contents",
            ));
        }
        let numeric = recipe.map != NumberMap::Bytes;
        if numeric && !matches!(width, 1 | 2 | 4 | 8) {
            return Err(Error::Malformed("numbers of that width do not exist"));
        }
        let float = matches!(
            recipe.map,
            NumberMap::Ordered | NumberMap::Decimal | NumberMap::Real
        );
        if float && !matches!(width, 4 | 8) {
            return Err(Error::Malformed("floats of that width do not exist"));
        }
        if recipe.map == NumberMap::Real && !real::predicts(recipe.predictor) {
            return Err(Error::Malformed("a predictor that reals do not have"));
        }
        if recipe.scale as usize >= SCALES.len() {
            return Err(Error::Malformed("unknown denominator"));
        }
        match recipe.scheme {
            Scheme::Verbatim
                if recipe.streams != 0 || !self.head.is_empty() || !self.tail.is_empty() =>
            {
                Err(Error::Malformed("verbatim frame with streams"))
            }
            Scheme::Constant if self.head.len() != width || !self.tail.is_empty() => {
                Err(Error::Malformed("constant frame without its element"))
            }
            Scheme::Columns | Scheme::Residuals
                if !self.body_len.is_multiple_of(width)
                    || !(recipe.segment_len as usize).is_multiple_of(width) =>
            {
                Err(Error::Malformed("segments are not whole elements"))
            }
            Scheme::Columns | Scheme::Residuals
                if recipe.streams as usize != stream_count(recipe) =>
            {
                Err(Error::Malformed(
                    "number of streams does not match the recipe",
                ))
            }
            Scheme::Residuals if !numeric => {
                Err(Error::Malformed("residuals of what is not a number"))
            }
            _ => Ok(()),
        }
    }

    /// Number of segments.
    pub(crate) fn segments(&self) -> usize {
        match self.recipe.segment_len as usize {
            0 => 0,
            len => self.body_len.div_ceil(len),
        }
    }

    /// Raw length of a segment.
    pub(crate) fn segment_raw_len(&self, segment: usize) -> usize {
        let len = self.recipe.segment_len as usize;
        len.min(self.body_len - segment * len)
    }

    fn segment_at(&self, segment: usize) -> usize {
        segment * (SEGMENT_LEN + self.recipe.streams as usize * STREAM_LEN)
    }

    /// XXH3-64 of the raw bytes of a segment.
    pub(crate) fn segment_hash(&self, segment: usize) -> u64 {
        let at = self.segment_at(segment);
        let mut word = [0; 8];
        word.copy_from_slice(&self.table[at..at + 8]);
        u64::from_le_bytes(word)
    }

    /// An entry of a segment.
    pub(crate) fn stream(&self, segment: usize, stream: usize) -> Result<StreamEntry, Error> {
        let at = self.segment_at(segment) + SEGMENT_LEN + stream * STREAM_LEN;
        let bytes = &self.table[at..at + STREAM_LEN];
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        Ok(StreamEntry {
            coder: Coder::from_byte(bytes[0]).ok_or(Error::Malformed("unknown coder"))?,
            filter: Filter::from_byte(bytes[1]).ok_or(Error::Malformed("unknown filter"))?,
            raw_len: word(2),
            stored_len: word(6),
            check: word(10),
        })
    }

    /// Bytes that a segment occupies in the payload.
    pub(crate) fn segment_stored_len(&self, segment: usize) -> Result<usize, Error> {
        if self.recipe.scheme == Scheme::Verbatim {
            return Ok(self.segment_raw_len(segment));
        }
        let mut sum = 0;
        for stream in 0..self.recipe.streams as usize {
            sum += self.stream(segment, stream)?.stored_len as usize;
        }
        Ok(sum)
    }
}
