//! One unit: read, encode, append.
//!
//! ```text
//! gathered frame, decoded: varint number of pieces, for each varint offset and length, zeros up
//! to the phase of the first piece, then the bytes of the pieces, which end the frame
//! ```

use std::collections::VecDeque;
use std::sync::Arc;

use shale_codec::{Effort, FrameKind, Hint};
use shale_index::extent::{Extent, ExtentMap, FramePart, MAX_FILE_SIZE, Place, TilePart};
use shale_index::wire::{Reader, put_varint};

use super::plan::Unit;
use crate::Error;
use crate::advice::Element;
use crate::file::File;
use crate::frames::{FrameEncoder, Frames};
use crate::pins::Pin;
use crate::store::Inner;
use crate::tiles::{Directory, Geometry};
use crate::worth::Worth;

/// Decoded frames that a worker keeps: a unit rarely begins where a frame does.
const RECENT: usize = 4;

/// A multiple of the widths of numbers.
const PHASE: u64 = 8;

/// A frame's place (pack and offset) and its contents.
type Decoded = ((u64, u64), Arc<Vec<u8>>);

/// What a worker needs and keeps from file to file: files in a row are often alike, and the
/// encoder remembers what was best for the one before.
pub(super) struct Tools {
    encoder: FrameEncoder,
    raw: Vec<u8>,
    tile: Vec<u8>,
    out: Vec<u8>,
}

impl Tools {
    pub(super) fn new() -> Self {
        Self {
            encoder: FrameEncoder::new(),
            raw: Vec::new(),
            tile: Vec::new(),
            out: Vec::new(),
        }
    }
}

/// A worker on a file.
pub(super) struct Settler<'a> {
    inner: &'a Inner,
    file: &'a File,
    noted: &'a ExtentMap,
    effort: Effort,
    recent: VecDeque<Decoded>,
    tools: &'a mut Tools,
}

/// Frames of a unit that have been encoded but not appended.
pub(super) enum Draft {
    Frame {
        table: usize,
        raw_len: usize,
    },
    Tiles {
        offset: u64,
        raw_len: u64,
        body: u64,
        directory: usize,
    },
}

impl<'a> Settler<'a> {
    pub(super) fn new(
        inner: &'a Inner,
        file: &'a File,
        noted: &'a ExtentMap,
        effort: Effort,
        tools: &'a mut Tools,
    ) -> Self {
        Self {
            inner,
            file,
            noted,
            effort,
            recent: VecDeque::new(),
            tools,
        }
    }

    /// Stored bytes that a unit would have: of an array only some `tiles`, spread over it, are
    /// encoded and stand for the others.
    pub(super) fn try_out(&mut self, unit: &Unit, tiles: usize) -> Result<u64, Error> {
        let Unit::Array {
            offset,
            geometry,
            elements,
            ..
        } = unit
        else {
            let (_, bytes) = self.encode(unit)?;
            return Ok(bytes.len() as u64);
        };
        self.tools.out.clear();
        self.tools.raw.clear();
        self.read(*offset, offset + geometry.len())?;
        let order = geometry.order();
        let raw: usize = some_tiles(&order, tiles)
            .map(|number| geometry.tile_len(number as usize))
            .sum();
        self.put_tiles(*offset, geometry, elements, some_tiles(&order, tiles))?;
        let share = unit.raw() as f64 / raw.max(1) as f64;
        Ok((self.tools.out.len() as f64 * share).round() as u64)
    }

    /// Encodes and appends a unit to one of so many lanes.
    pub(super) fn write(&mut self, unit: &Unit, lanes: usize) -> Result<(Vec<Extent>, Pin), Error> {
        let inner = self.inner;
        let (draft, bytes) = self.encode(unit)?;
        append(inner, unit, draft, bytes, lanes)
    }

    /// Encodes a unit.
    pub(super) fn encode(&mut self, unit: &Unit) -> Result<(Draft, &[u8]), Error> {
        let draft = self.put(unit)?;
        Ok((draft, &self.tools.out))
    }

    fn put(&mut self, unit: &Unit) -> Result<Draft, Error> {
        self.tools.out.clear();
        self.tools.raw.clear();
        match unit {
            Unit::Gather(pieces) => {
                put_table(&mut self.tools.raw, pieces);
                let table = self.tools.raw.len();
                for &(start, end) in pieces {
                    self.read(start, end)?;
                }
                let first = pieces.first().map_or(0, |piece| piece.0);
                let owner = (FrameKind::Gather, self.file.ino, first);
                self.inner.frames.encode_into(
                    &mut self.tools.encoder,
                    owner,
                    &Hint::Unknown,
                    self.effort,
                    &self.tools.raw,
                    &mut self.tools.out,
                )?;
                Ok(Draft::Frame {
                    table,
                    raw_len: self.tools.raw.len(),
                })
            }
            Unit::Array {
                offset,
                geometry,
                elements,
                ..
            } => {
                self.read(*offset, offset + geometry.len())?;
                self.encode_tiles(*offset, geometry, elements)
            }
        }
    }

    fn encode_tiles(
        &mut self,
        offset: u64,
        geometry: &Geometry,
        elements: &[Option<Element>],
    ) -> Result<Draft, Error> {
        let order = geometry.order();
        let lengths = self.put_tiles(offset, geometry, elements, order.into_iter())?;
        let body = self.tools.out.len() as u64;
        let directory = Directory::encode(geometry, &lengths);
        let owner = (FrameKind::Tiles, self.file.ino, offset);
        self.inner.frames.encode_into(
            &mut self.tools.encoder,
            owner,
            &Hint::Unknown,
            Effort::Zstd(3),
            &directory,
            &mut self.tools.out,
        )?;
        Ok(Draft::Tiles {
            offset,
            raw_len: geometry.len(),
            body,
            directory: directory.len(),
        })
    }

    /// Encodes some tiles of the array that has been read; returns their lengths.
    fn put_tiles(
        &mut self,
        offset: u64,
        geometry: &Geometry,
        elements: &[Option<Element>],
        numbers: impl Iterator<Item = u32>,
    ) -> Result<Vec<u32>, Error> {
        let (frames, effort) = (&self.inner.frames, self.effort);
        let owner = (FrameKind::Tile, self.file.ino, offset);
        let Tools {
            encoder,
            raw,
            tile,
            out,
        } = &mut *self.tools;
        let array = (geometry, elements);
        each_tile(array, raw, numbers, tile, |worth, hint, tile| {
            frames.encode_tile(encoder, owner, hint, (effort, worth), tile, &mut *out)
        })
    }

    /// Appends what the file had in a range when its extents were noted.
    fn read(&mut self, start: u64, end: u64) -> Result<(), Error> {
        let base = self.tools.raw.len();
        self.tools.raw.resize(base + (end - start) as usize, 0);
        let (inner, ino, recent) = (self.inner, self.file.ino, &mut self.recent);
        for extent in self.noted.range(start, end) {
            let at = base + (extent.offset - start) as usize;
            let out = &mut self.tools.raw[at..at + extent.len as usize];
            inner
                .frames
                .copy_extent_from(&extent, ino, out, |part, offset| {
                    let key = (part.pack, part.at);
                    if let Some((_, raw)) = recent.iter().find(|(at, _)| *at == key) {
                        return Ok(Arc::clone(raw));
                    }
                    let raw = inner.frames.get_once(part, ino, offset)?;
                    recent.truncate(RECENT - 1);
                    recent.push_front((key, Arc::clone(&raw)));
                    Ok(raw)
                })?;
        }
        Ok(())
    }
}

/// Appends a unit to one of so many lanes. The pin keeps its pack until the extents are committed.
pub(super) fn append(
    inner: &Inner,
    unit: &Unit,
    draft: Draft,
    bytes: &[u8],
    lanes: usize,
) -> Result<(Vec<Extent>, Pin), Error> {
    let lane = inner.lanes.choose(lanes.max(1), bytes.len() as u64);
    let (appended, pin) = inner.frames.packs.append(lane, bytes)?;
    inner.space.spend(bytes.len() as u64);
    let mut extents = Vec::new();
    match draft {
        Draft::Frame { table, raw_len } => {
            let mut skip = table;
            for (start, end) in unit.ranges() {
                let part = FramePart {
                    pack: appended.pack,
                    at: appended.at,
                    frame_len: bytes.len() as u32,
                    raw_len: raw_len as u32,
                    skip: skip as u32,
                };
                extents.push(Extent {
                    offset: start,
                    len: end - start,
                    place: Place::Frame(part),
                });
                skip += (end - start) as usize;
            }
        }
        Draft::Tiles {
            offset,
            raw_len,
            body,
            directory,
        } => {
            let part = TilePart {
                pack: appended.pack,
                at: appended.at + body,
                frame_len: (bytes.len() as u64 - body) as u32,
                directory_len: directory as u32,
                body,
                raw_len,
                skip: 0,
            };
            let whole = Extent {
                offset,
                len: raw_len,
                place: Place::Tiles(part),
            };
            extents.extend(
                unit.ranges()
                    .filter_map(|(start, end)| whole.slice(start, end)),
            );
        }
    }
    Ok((extents, pin))
}

/// Some of the tiles of an array, spread over it. `order` is the order in which they are stored.
pub(crate) fn some_tiles(order: &[u32], tiles: usize) -> impl Iterator<Item = u32> {
    let step = (order.len() / tiles.max(1)).max(1);
    order.iter().copied().skip(step / 2).step_by(step)
}

/// Cuts tiles out of the bytes of an array and has each encoded; returns their lengths.
pub(crate) fn each_tile(
    (geometry, elements): (&Geometry, &[Option<Element>]),
    raw: &[u8],
    numbers: impl Iterator<Item = u32>,
    tile: &mut Vec<u8>,
    mut encode: impl FnMut(&mut Worth, &Hint<'_>, &[u8]) -> Result<u32, Error>,
) -> Result<Vec<u32>, Error> {
    let mut worth: Vec<Worth> = geometry.fields().iter().map(|_| Worth::default()).collect();
    let mut lengths = Vec::with_capacity(numbers.size_hint().0);
    for number in numbers {
        geometry.cut(raw, number as usize, tile);
        let (field, _, shape) = geometry.tile(number as usize);
        let element = elements.get(field).copied().flatten();
        let shape = tile_shape(&shape, element.as_ref());
        let hint = tile_hint(element.as_ref(), &shape);
        lengths.push(encode(&mut worth[field], &hint, tile)?);
    }
    Ok(lengths)
}

/// Extents of a tile in elements, from those in bytes.
fn tile_shape(bytes: &[u64], element: Option<&Element>) -> Vec<usize> {
    let mut shape: Vec<usize> = bytes.iter().map(|&n| n as usize).collect();
    if let (Some(last), Some(element)) = (shape.last_mut(), element)
        && element.is_useful()
    {
        *last /= element.width as usize;
    }
    shape
}

/// What the codec is told of a tile; `shape` as [`tile_shape`] makes it.
fn tile_hint<'a>(element: Option<&Element>, shape: &'a [usize]) -> Hint<'a> {
    match element.filter(|element| element.is_useful()) {
        Some(element) => Hint::Array {
            width: element.width as usize,
            kind: element.kind,
            order: element.order,
            shape,
        },
        None => Hint::Unknown,
    }
}

/// Whether a unit is stored as it would be after settling it.
pub(super) fn is_done(unit: &Unit, noted: &ExtentMap, frames: &Frames, ino: u64) -> bool {
    match unit {
        Unit::Array {
            offset, geometry, ..
        } => {
            let mut extents = unit
                .ranges()
                .flat_map(|(start, end)| noted.range(start, end));
            let (Some(extent), None) = (extents.next(), extents.next()) else {
                return false;
            };
            match &extent.place {
                Place::Tiles(part) => {
                    extent.end() == offset + geometry.len()
                        && part.skip == extent.offset - offset
                        && unit.raw() == extent.len
                        && frames
                            .directory(part, ino, extent.offset)
                            .is_ok_and(|directory| directory.geometry() == &**geometry)
                }
                _ => false,
            }
        }
        Unit::Gather(pieces) => {
            // A gathered frame has its table in front of the bytes; in others something else or
            // nothing is there.
            let mut table = Vec::new();
            put_table(&mut table, pieces);
            let mut frame: Option<(u64, u64)> = None;
            let (mut skip, mut raw_len) = (table.len() as u64, 0);
            for &(start, end) in pieces {
                let mut extents = noted.range(start, end);
                let (Some(extent), None) = (extents.next(), extents.next()) else {
                    return false;
                };
                let Place::Frame(part) = &extent.place else {
                    return false;
                };
                let at = (part.pack, part.at);
                if extent.len != end - start || *frame.get_or_insert(at) != at {
                    return false;
                }
                if u64::from(part.skip) != skip {
                    return false;
                }
                skip += extent.len;
                raw_len = u64::from(part.raw_len);
            }
            skip == raw_len
        }
    }
}

fn put_table(out: &mut Vec<u8>, pieces: &[(u64, u64)]) {
    put_varint(out, pieces.len() as u64);
    for &(start, end) in pieces {
        put_varint(out, start);
        put_varint(out, end - start);
    }
    // Elements keep the phase that they have in the file, or the codec would not find them.
    let first = pieces.first().map_or(0, |piece| piece.0);
    while out.len() as u64 % PHASE != first % PHASE {
        out.push(0);
    }
}

/// The pieces of a gathered frame: offset and length in the file, offset in the frame.
pub(crate) fn gathered(raw: &[u8]) -> Option<Vec<(u64, u64, u32)>> {
    let mut reader = Reader::new(raw);
    let count = reader.varint()?;
    let mut pieces = Vec::new();
    let mut total = 0u64;
    for _ in 0..count {
        let (offset, len) = (reader.varint()?, reader.varint()?);
        let end = offset.checked_add(len)?;
        if len == 0 || end > MAX_FILE_SIZE {
            return None;
        }
        pieces.push((offset, len));
        total = total.checked_add(len)?;
    }
    let mut skip = u64::try_from(raw.len()).ok()?.checked_sub(total)?;
    Some(
        pieces
            .into_iter()
            .map(|(offset, len)| {
                let at = skip as u32;
                skip += len;
                (offset, len, at)
            })
            .collect(),
    )
}
