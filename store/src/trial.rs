//! Encoding on trial: what data that is in no store would take in one.
//!
//! The same cutting, hints and efforts as writing and settling use, without packs and index.

use std::io;
use std::time::{Duration, Instant};

use shale_codec::{Effort, FrameKind, FrameMeta, Hint};
use shale_index::extent::{Extent, Place};

use crate::Error;
use crate::advice::{Advice, Segment, cut};
use crate::frames::FrameEncoder;
use crate::settle::{Region, Sizes, array_max, each_tile, plan, some_tiles};
use crate::tiles::Directory;
use crate::worth::Worth;

/// Files below this are not settled.
pub const SETTLE_MIN: u64 = crate::commit::SETTLE_MIN;
/// A file is settled when it becomes smaller than so many percent of what it takes.
pub const WORTH_PERCENT: u64 = crate::settle::WORTH_PERCENT;

/// What came of encoding something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tried {
    /// Bytes before.
    pub raw: u64,
    /// Bytes after.
    pub stored: u64,
    /// Bytes of these that are stored as they are, so that they could be written at once.
    pub plain: u64,
    /// How long encoding took, the check of its result included.
    pub encode: Duration,
    /// How long decoding took.
    pub decode: Duration,
}

impl Tried {
    /// Adds another.
    pub fn add(&mut self, other: &Self) {
        self.raw += other.raw;
        self.stored += other.stored;
        self.plain += other.plain;
        self.encode += other.encode;
        self.decode += other.decode;
    }
}

/// A part of a file that settling would encode as a whole.
#[derive(Clone, Debug)]
pub struct Part(plan::Unit);

impl Part {
    /// Bytes of the file in it.
    #[must_use]
    pub fn raw(&self) -> u64 {
        self.0.raw()
    }
}

/// The parts into which settling would cut a file of which `data` are no holes.
#[must_use]
pub fn parts(regions: &[Region], size: u64, data: &[(u64, u64)]) -> Vec<Part> {
    let sizes = &Sizes::USUAL;
    // As a mount with enough memory cuts them.
    let all = plan::Arrays::new(regions, size, array_max(size), sizes);
    let mut arrays = Vec::new();
    for &(start, end) in data {
        let inside = all.between(start, end).into_iter();
        arrays.extend(inside.filter(|array| array.span().1 <= end));
    }
    let taken: Vec<(u64, u64)> = arrays.iter().flat_map(plan::Unit::ranges).collect();
    let extent = |&(start, end): &(u64, u64)| Extent {
        offset: start,
        len: end - start,
        place: Place::Hole,
    };
    let extents: Vec<Extent> = data.iter().map(extent).collect();
    let mut units = plan::rest(&extents, &taken, sizes);
    units.extend(arrays);
    units.into_iter().map(Part).collect()
}

/// Encodes on trial; keeps its buffers.
pub struct Trial {
    encoder: FrameEncoder,
    raw: Vec<u8>,
    tile: Vec<u8>,
}

impl Default for Trial {
    fn default() -> Self {
        Self {
            encoder: FrameEncoder::new(),
            raw: Vec::new(),
            tile: Vec::new(),
        }
    }
}

impl Trial {
    /// What bytes would take that are written at `offset` of a file about which `advice` knows
    /// something. They must be within one chunk.
    ///
    /// # Errors
    /// When they cannot be encoded.
    pub fn write(
        &mut self,
        advice: Option<&dyn Advice>,
        offset: u64,
        raw: &[u8],
    ) -> Result<Tried, Error> {
        let mut all = Tried::default();
        for Segment {
            start,
            end,
            element,
        } in cut(advice, offset, offset + raw.len() as u64)
        {
            let segment = Segment {
                start,
                end,
                element,
            };
            let bytes = &raw[(start - offset) as usize..(end - offset) as usize];
            all.add(&self.encode(FrameKind::Data, &segment.hint(), Effort::Fast, bytes)?);
        }
        Ok(all)
    }

    /// What a part would take when settled. `read` gets bytes of the file; of an array only
    /// some `tiles`, spread over it, are encoded and stand for the others.
    ///
    /// # Errors
    /// What `read` says, or when something cannot be encoded.
    pub fn settle(
        &mut self,
        part: &Part,
        tiles: usize,
        mut read: impl FnMut(u64, &mut [u8]) -> io::Result<()>,
    ) -> Result<Tried, Error> {
        let mut raw = std::mem::take(&mut self.raw);
        raw.clear();
        let result = self.settle_into(part, tiles, &mut raw, &mut read);
        self.raw = raw;
        result
    }

    fn settle_into(
        &mut self,
        Part(unit): &Part,
        tiles: usize,
        raw: &mut Vec<u8>,
        read: &mut dyn FnMut(u64, &mut [u8]) -> io::Result<()>,
    ) -> Result<Tried, Error> {
        let mut fetch = |raw: &mut Vec<u8>, start: u64, end: u64| {
            let base = raw.len();
            raw.resize(base + (end - start) as usize, 0);
            read(start, &mut raw[base..]).map_err(Error::io("read", "the sample"))
        };
        match unit {
            plan::Unit::Gather(pieces) => {
                for &(start, end) in pieces {
                    fetch(raw, start, end)?;
                }
                self.encode(FrameKind::Gather, &Hint::Unknown, Effort::Dense, raw)
            }
            plan::Unit::Array {
                offset,
                geometry,
                elements,
                ..
            } => {
                fetch(raw, *offset, offset + geometry.len())?;
                let order = geometry.order();
                let mut tile = std::mem::take(&mut self.tile);
                let mut all = Tried::default();
                let lengths = each_tile(
                    (geometry, elements),
                    raw,
                    some_tiles(&order, tiles),
                    &mut tile,
                    |worth, hint, tile| {
                        let tried = self.encode_tile(worth, hint, tile)?;
                        all.add(&tried);
                        Ok(tried.stored as u32)
                    },
                )?;
                self.tile = tile;
                let share = geometry.len() as f64 / all.raw.max(1) as f64;
                let scale = |bytes: u64| (bytes as f64 * share).round() as u64;
                // The directory has a length for every tile.
                let known: Vec<u32> = lengths.iter().copied().cycle().take(order.len()).collect();
                let directory = Directory::encode(geometry, &known);
                let hint = &Hint::Unknown;
                let directory = self.encode(FrameKind::Tiles, hint, Effort::Zstd(3), &directory)?;
                Ok(Tried {
                    raw: geometry.len(),
                    stored: scale(all.stored) + directory.stored,
                    plain: scale(all.plain),
                    encode: all.encode.mul_f64(share) + directory.encode,
                    decode: all.decode.mul_f64(share) + directory.decode,
                })
            }
        }
    }

    fn encode(
        &mut self,
        kind: FrameKind,
        hint: &Hint<'_>,
        effort: Effort,
        raw: &[u8],
    ) -> Result<Tried, Error> {
        let begun = Instant::now();
        self.encoder.encode(&meta(kind), hint, effort, raw)?;
        self.tried(raw, begun)
    }

    fn encode_tile(
        &mut self,
        worth: &mut Worth,
        hint: &Hint<'_>,
        raw: &[u8],
    ) -> Result<Tried, Error> {
        let begun = Instant::now();
        let (encoder, meta) = (&mut self.encoder, meta(FrameKind::Tile));
        worth.encode(encoder, &meta, hint, Effort::Dense, raw)?;
        self.tried(raw, begun)
    }

    /// What the frame made since `begun` takes.
    fn tried(&mut self, raw: &[u8], begun: Instant) -> Result<Tried, Error> {
        let encode = begun.elapsed();
        let begun = Instant::now();
        let frame = self.encoder.decode_again()?;
        let decode = begun.elapsed();
        Ok(Tried {
            raw: raw.len() as u64,
            stored: frame.len() as u64,
            plain: u64::from(shale_codec::plain_bytes(frame)?),
            encode,
            decode,
        })
    }
}

fn meta(kind: FrameKind) -> FrameMeta {
    FrameMeta {
        kind,
        inode: 1,
        offset: 0,
        sequence: 1,
    }
}
