//! How much space data outside a store would take in one.
//!
//! The data is split, hinted and encoded as in writing and settling, but without packs and index:
//! the frames are measured and dropped.

use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

use shale_codec::{Effort, FrameKind};
use shale_index::extent::{Extent, Place};

use crate::Error;
use crate::file::{LayoutHints, spans};
use crate::frame::{FrameEncoder, FrameSpec};
use crate::settle::{
    Arrays, DensityChoice, FrameSink, Region, Sizes, UnitEncoder, UnitSource, UnitTools, array_max,
    rest, some_tiles,
};
use crate::{settle, settle::Unit as SettleUnit};

/// Files below this are not settled.
pub const SETTLE_MIN: u64 = settle::SETTLE_MIN;
/// A file is settled when it shrinks below this percentage of its stored size.
pub const WORTH_PERCENT: u64 = settle::WORTH_PERCENT;

/// The inode in the frames, which are only measured.
const INO: u64 = 1;
/// Frames that are only measured need no number.
const SEQUENCE: u64 = 1;

/// The result of encoding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// Bytes before.
    pub raw: u64,
    /// Bytes after.
    pub stored: u64,
    /// Bytes of these that are stored raw, so that they could be written at once.
    pub plain: u64,
    /// Time to encode, including the check of the result.
    pub encode: Duration,
    /// Time to decode.
    pub decode: Duration,
}

impl Measured {
    /// Adds another.
    pub fn add(&mut self, other: &Self) {
        self.raw += other.raw;
        self.stored += other.stored;
        self.plain += other.plain;
        self.encode += other.encode;
        self.decode += other.decode;
    }
}

/// A part of a file that settling would encode as one unit.
#[derive(Clone, Debug)]
pub struct Unit(SettleUnit);

impl Unit {
    /// Bytes of the file in it.
    #[must_use]
    pub fn raw(&self) -> u64 {
        self.0.raw()
    }
}

/// The units into which settling would split a file; `data` are the ranges that are not holes.
#[must_use]
pub fn units(regions: &[Region], size: u64, data: &[Range<u64>]) -> Vec<Unit> {
    let sizes = &Sizes::USUAL;
    // As a mount with enough memory splits it.
    let all = Arrays::new(regions, size, array_max(size), sizes);
    let mut arrays = Vec::new();
    for range in data {
        let inside = all.between(range.clone()).into_iter();
        arrays.extend(inside.filter(|array| array.span().end <= range.end));
    }
    let taken: Vec<Range<u64>> = arrays.iter().flat_map(SettleUnit::ranges).collect();
    let extent = |range: &Range<u64>| Extent {
        offset: range.start,
        len: range.end - range.start,
        place: Place::Hole,
    };
    let extents: Vec<Extent> = data.iter().map(extent).collect();
    let mut units = rest(&extents, &taken, sizes);
    units.extend(arrays);
    units.into_iter().map(Unit).collect()
}

/// Encodes and measures; keeps its buffers.
pub struct Estimator {
    tools: UnitTools,
}

impl Default for Estimator {
    fn default() -> Self {
        Self {
            tools: UnitTools::new(),
        }
    }
}

impl Estimator {
    /// Measures bytes that are written at `offset` of a file, with `hints` about it. They must be
    /// within one chunk.
    ///
    /// # Errors
    /// When they cannot be encoded.
    pub fn write(
        &mut self,
        hints: Option<&dyn LayoutHints>,
        offset: u64,
        raw: &[u8],
    ) -> Result<Measured, Error> {
        let mut sink = Meter::default();
        for span in spans(hints, offset..offset + raw.len() as u64) {
            let Range { start, end } = span.range;
            let bytes = &raw[(start - offset) as usize..(end - offset) as usize];
            let spec = FrameSpec {
                kind: FrameKind::Data,
                ino: INO,
                offset: start,
                hint: span.hint(),
                effort: Effort::Fast,
            };
            sink.frame(&mut self.tools.encoder, &spec, bytes, 0)?;
        }
        Ok(sink.take())
    }

    /// Measures a settled unit. `read` gets bytes of the file; of an array only some `tiles`,
    /// spread over it, are encoded and stand for the others.
    ///
    /// # Errors
    /// What `read` says, or when something cannot be encoded.
    pub fn settle(
        &mut self,
        Unit(unit): &Unit,
        tiles: usize,
        read: impl FnMut(u64, &mut [u8]) -> io::Result<()>,
    ) -> Result<Measured, Error> {
        let mut encoder = UnitEncoder {
            ino: INO,
            effort: Effort::Dense,
            source: Sample(read),
            sink: Meter::default(),
            tools: &mut self.tools,
        };
        let SettleUnit::Array(array) = unit else {
            encoder.encode(unit)?;
            return Ok(encoder.sink.take());
        };
        let order = array.geometry.order();
        let lengths = encoder.encode_tiles(array, some_tiles(&order, tiles))?;
        let some = encoder.sink.take();
        let known: Vec<u32> = lengths.iter().copied().cycle().take(order.len()).collect();
        encoder.encode_directory(array, &known)?;
        let directory = encoder.sink.take();
        let share = array.geometry.len() as f64 / some.raw.max(1) as f64;
        let scale = |bytes: u64| (bytes as f64 * share).round() as u64;
        Ok(Measured {
            raw: array.geometry.len(),
            stored: scale(some.stored) + directory.stored,
            plain: scale(some.plain),
            encode: some.encode.mul_f64(share) + directory.encode,
            decode: some.decode.mul_f64(share) + directory.decode,
        })
    }
}

/// Data outside a store.
struct Sample<F>(F);

impl<F: FnMut(u64, &mut [u8]) -> io::Result<()>> UnitSource for Sample<F> {
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        (self.0)(offset, out).map_err(Error::io("read", "the sample"))
    }
}

/// Adds up the lengths of frames, and drops them.
#[derive(Default)]
struct Meter(Measured);

impl Meter {
    fn take(&mut self) -> Measured {
        std::mem::take(&mut self.0)
    }

    /// Adds the frame of `raw` that was made since `begun`; returns its length.
    fn add(
        &mut self,
        encoder: &mut FrameEncoder,
        raw: &[u8],
        begun: Instant,
    ) -> Result<u32, Error> {
        let encode = begun.elapsed();
        let begun = Instant::now();
        let frame = encoder.decode_again()?;
        let decode = begun.elapsed();
        self.0.add(&Measured {
            raw: raw.len() as u64,
            stored: frame.len() as u64,
            plain: u64::from(shale_codec::plain_bytes(frame)?),
            encode,
            decode,
        });
        Ok(frame.len() as u32)
    }
}

impl FrameSink for Meter {
    /// The table of a gathered frame is left out: only bytes of the file are measured.
    fn frame(
        &mut self,
        encoder: &mut FrameEncoder,
        spec: &FrameSpec<'_>,
        raw: &[u8],
        table: usize,
    ) -> Result<u32, Error> {
        let raw = &raw[table..];
        let begun = Instant::now();
        encoder.encode(spec, SEQUENCE, raw)?;
        self.add(encoder, raw, begun)
    }

    fn tile(
        &mut self,
        encoder: &mut FrameEncoder,
        choice: &mut DensityChoice,
        spec: &FrameSpec<'_>,
        raw: &[u8],
    ) -> Result<u32, Error> {
        let begun = Instant::now();
        choice.encode(encoder, spec, SEQUENCE, raw)?;
        self.add(encoder, raw, begun)
    }
}

#[cfg(test)]
mod tests {
    use shale_codec::{ByteOrder, ElementKind, Hint};

    use super::*;
    use crate::frame::TileDirectory;
    use crate::settle::Block;

    /// Numbers that grow smoothly, with text around them.
    fn sample() -> (Vec<u8>, Vec<Region>) {
        let mut bytes: Vec<u8> = (0..70_000u32).flat_map(|i| (i / 7).to_le_bytes()).collect();
        let offset = bytes.len() as u64;
        let (records, width, dims) = (24, 4, [96, 128]);
        for i in 0..records * dims[0] * dims[1] {
            let value = (i as f32 / 1000.0).sin() * 280.0;
            bytes.extend(value.to_be_bytes());
        }
        bytes.extend(b"a note at the end ".repeat(900));
        let region = Region {
            offset,
            records,
            record: dims[0] * dims[1] * width,
            blocks: vec![Block {
                at: 0,
                width: width as u32,
                kind: ElementKind::Float,
                order: ByteOrder::Big,
                dims: dims.to_vec(),
            }],
        };
        (bytes, vec![region])
    }

    fn spec<'a>(kind: FrameKind, hint: Hint<'a>, effort: Effort) -> FrameSpec<'a> {
        FrameSpec {
            kind,
            ino: 1,
            offset: 0,
            hint,
            effort,
        }
    }

    /// Raw, stored and plain bytes of the frame made last.
    fn figures(encoder: &FrameEncoder, raw: &[u8]) -> [u64; 3] {
        let frame = encoder.frame();
        let plain = shale_codec::plain_bytes(frame).unwrap();
        [raw.len() as u64, frame.len() as u64, u64::from(plain)]
    }

    /// The size of a unit, frame by frame and without the unit encoder.
    fn by_hand(unit: &SettleUnit, bytes: &[u8], encoder: &mut FrameEncoder) -> [u64; 3] {
        let array = match unit {
            SettleUnit::Array(array) => array,
            SettleUnit::Gather(pieces) => {
                let of = |piece: &Range<u64>| &bytes[piece.start as usize..piece.end as usize];
                let raw: Vec<u8> = pieces.iter().flat_map(of).copied().collect();
                let spec = spec(FrameKind::Gather, Hint::Unknown, Effort::Dense);
                encoder.encode(&spec, 1, &raw).unwrap();
                return figures(encoder, &raw);
            }
        };
        let geometry = &array.geometry;
        let raw = &bytes[array.offset as usize..][..geometry.len() as usize];
        let (order, mut choice) = (geometry.order(), DensityChoice::default());
        let (mut tile, mut lengths, mut sum) = (Vec::new(), Vec::new(), [0; 3]);
        for number in some_tiles(&order, 4) {
            geometry.extract(raw, number as usize, &mut tile);
            let (_, _, shape) = geometry.tile(number as usize);
            let mut shape: Vec<usize> = shape.iter().map(|&n| n as usize).collect();
            *shape.last_mut().unwrap() /= 4;
            let hint = Hint::Array {
                width: 4,
                kind: ElementKind::Float,
                order: ByteOrder::Big,
                shape: &shape,
            };
            let spec = spec(FrameKind::Tile, hint, Effort::Dense);
            choice.encode(encoder, &spec, 1, &tile).unwrap();
            let tile = figures(encoder, &tile);
            lengths.push(tile[1] as u32);
            sum.iter_mut().zip(tile).for_each(|(sum, n)| *sum += n);
        }
        let share = geometry.len() as f64 / sum[0] as f64;
        let scale = |bytes: u64| (bytes as f64 * share).round() as u64;
        let all: Vec<u32> = lengths.iter().copied().cycle().take(order.len()).collect();
        let directory = TileDirectory::encode(geometry, &all);
        let spec = spec(FrameKind::Tiles, Hint::Unknown, Effort::Zstd(3));
        encoder.encode(&spec, 1, &directory).unwrap();
        let directory = figures(encoder, &directory);
        [geometry.len(), scale(sum[1]) + directory[1], scale(sum[2])]
    }

    #[test]
    fn an_estimate_adds_up_the_frames_that_settling_would_make() {
        let (bytes, regions) = sample();
        let size = bytes.len() as u64;
        let (mut estimator, mut encoder) = (Estimator::default(), FrameEncoder::new());
        let units = units(&regions, size, std::slice::from_ref(&(0..size)));
        assert!(
            units
                .iter()
                .any(|unit| matches!(unit.0, SettleUnit::Array(_)))
        );
        assert!(
            units
                .iter()
                .any(|unit| matches!(unit.0, SettleUnit::Gather(_)))
        );
        for unit in &units {
            let measured = estimator.settle(unit, 4, |offset, out| {
                out.copy_from_slice(&bytes[offset as usize..][..out.len()]);
                Ok(())
            });
            let Measured {
                raw, stored, plain, ..
            } = measured.unwrap();
            let expected = by_hand(&unit.0, &bytes, &mut encoder);
            assert_eq!([raw, stored, plain], expected);
        }
        let chunk = &bytes[..1 << 18];
        let written = estimator.write(None, 0, chunk).unwrap();
        let spec = spec(FrameKind::Data, Hint::Unknown, Effort::Fast);
        encoder.encode(&spec, 1, chunk).unwrap();
        let expected = figures(&encoder, chunk);
        assert_eq!([written.raw, written.stored, written.plain], expected);
    }
}
