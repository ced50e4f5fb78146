//! The directory: where the blocks and streams of the payload are.
//!
//! | size | field |
//! |---|---|
//! | 24 | recipe |
//! | head | raw bytes before the first element (for a constant chunk: the element) |
//! | tail | raw bytes after the last element |
//! | per block: 8 | XXH3-64 of its raw bytes |
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
//! A verbatim block has no stream: its raw bytes are its payload, and the
//! hash of the raw bytes checks them.
#![forbid(unsafe_code)]

use super::codes::byte_codes;
use super::header::{FrameHeader, HEADER_LEN};
use super::recipe::{DENOMINATORS, NumberMap, RECIPE_LEN, Recipe, Scheme};
use crate::checksum::hash64;
use crate::error::Error;

pub(crate) const BLOCK_HASH_LEN: usize = 8;
pub(crate) const STREAM_LEN: usize = 14;

byte_codes! {
    /// How a stream is coded.
    pub(crate) enum Coder {
        /// Not coded: the bytes themselves.
        Raw = 0, "raw";
        /// One byte, repeated.
        Constant = 1, "constant";
        /// Runs: a byte, then the run's length less one as a LEB128 integer.
        Runs = 2, "runs";
        /// Zstd with match finding practically off.
        Entropy = 3, "entropy";
        /// An LZ4 block.
        Lz4 = 4, "lz4";
        /// Zstd.
        Zstd = 5, "zstd";
        /// Range-coded classes of residuals; the decoded length is their number.
        Rans = 6, "rans";
        /// Long runs between stretches of uncoded bytes.
        Gaps = 7, "gaps";
    }
}

byte_codes! {
    /// What was applied to a stream before it was coded.
    pub(crate) enum Filter {
        /// Nothing.
        None = 0;
        /// Each byte less the byte before.
        Delta = 1;
    }
}

/// One stream of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamEntry {
    pub(crate) coder: Coder,
    pub(crate) filter: Filter,
    pub(crate) raw_len: u32,
    pub(crate) stored_len: u32,
    pub(crate) check: u32,
}

/// Bytes of a directory, once the number of blocks is known.
pub(crate) fn directory_len(recipe: &Recipe, blocks: usize) -> usize {
    RECIPE_LEN
        + recipe.head as usize
        + recipe.tail as usize
        + blocks * (BLOCK_HASH_LEN + recipe.streams as usize * STREAM_LEN)
}

/// Streams that a block of a recipe has.
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

/// Writes a block's hash at `at`; returns where its first entry goes.
pub(crate) fn put_block(bytes: &mut [u8], at: usize, hash: u64) -> usize {
    bytes[at..at + 8].copy_from_slice(&hash.to_le_bytes());
    at + BLOCK_HASH_LEN
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

/// A frame's directory, checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameDirectory<'a> {
    pub(crate) recipe: Recipe,
    /// Raw bytes before the first element, or the element of a constant chunk.
    pub(crate) head: &'a [u8],
    /// Raw bytes after the last element.
    pub(crate) tail: &'a [u8],
    /// Everything after the directory.
    pub(crate) payload: &'a [u8],
    /// Raw bytes between head and tail.
    pub(crate) body_len: usize,
    table: &'a [u8],
}

impl<'a> FrameDirectory<'a> {
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

    /// The same without the check of the length: `frame` may end anywhere after its directory. Do
    /// not decode with the result.
    pub(crate) fn parse_head(header: &FrameHeader, frame: &'a [u8]) -> Result<Self, Error> {
        let (bytes, payload) = frame
            .get(HEADER_LEN..)
            .and_then(|rest| rest.split_at_checked(header.directory_len as usize))
            .ok_or(Error::Malformed("directory extends beyond the frame"))?;
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
        let this = FrameDirectory {
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
        if self.body_len > 0 && recipe.block_len == 0 {
            return Err(Error::Malformed("block length is zero"));
        }
        if directory_len(recipe, self.blocks())
            != RECIPE_LEN + self.head.len() + self.tail.len() + self.table.len()
        {
            return Err(Error::Malformed(
                "directory length does not match its contents",
            ));
        }
        let numeric = recipe.map != NumberMap::Bytes;
        if numeric && !matches!(width, 1 | 2 | 4 | 8) {
            return Err(Error::Malformed("impossible width of numbers"));
        }
        let float = matches!(
            recipe.map,
            NumberMap::Ordered | NumberMap::Decimal | NumberMap::Real
        );
        if float && !matches!(width, 4 | 8) {
            return Err(Error::Malformed("impossible width of floats"));
        }
        if recipe.map == NumberMap::Real && !recipe.predictor.applies_to_floats() {
            return Err(Error::Malformed("predictor not defined for reals"));
        }
        if recipe.scale as usize >= DENOMINATORS.len() {
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
                    || !(recipe.block_len as usize).is_multiple_of(width) =>
            {
                Err(Error::Malformed("blocks are not whole elements"))
            }
            Scheme::Columns | Scheme::Residuals
                if recipe.streams as usize != stream_count(recipe) =>
            {
                Err(Error::Malformed(
                    "number of streams does not match the recipe",
                ))
            }
            Scheme::Residuals if !numeric => Err(Error::Malformed("residuals of bytes")),
            _ => Ok(()),
        }
    }

    /// Number of blocks.
    pub(crate) fn blocks(&self) -> usize {
        match self.recipe.block_len as usize {
            0 => 0,
            len => self.body_len.div_ceil(len),
        }
    }

    /// Raw length of a block.
    pub(crate) fn block_raw_len(&self, block: usize) -> usize {
        let len = self.recipe.block_len as usize;
        len.min(self.body_len - block * len)
    }

    fn block_at(&self, block: usize) -> usize {
        block * (BLOCK_HASH_LEN + self.recipe.streams as usize * STREAM_LEN)
    }

    /// XXH3-64 of the raw bytes of a block.
    pub(crate) fn block_hash(&self, block: usize) -> u64 {
        let at = self.block_at(block);
        let mut word = [0; 8];
        word.copy_from_slice(&self.table[at..at + 8]);
        u64::from_le_bytes(word)
    }

    /// An entry of a block.
    pub(crate) fn stream(&self, block: usize, stream: usize) -> Result<StreamEntry, Error> {
        let at = self.block_at(block) + BLOCK_HASH_LEN + stream * STREAM_LEN;
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

    /// Bytes that a block occupies in the payload.
    pub(crate) fn block_stored_len(&self, block: usize) -> Result<usize, Error> {
        if self.recipe.scheme == Scheme::Verbatim {
            return Ok(self.block_raw_len(block));
        }
        let mut sum = 0;
        for stream in 0..self.recipe.streams as usize {
            sum += self.stream(block, stream)?.stored_len as usize;
        }
        Ok(sum)
    }
}
