//! Encoding one unit, and appending it.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use shale_codec::{Effort, FrameKind, Hint};
use shale_index::Ino;
use shale_index::extent::{Extent, ExtentMap, FramePart, Place, TilePart};

use super::Settler;
use super::density::DensityChoice;
use super::plan::{Array, Unit};
use crate::Error;
use crate::file::{Element, File};
use crate::frame::{FrameBatch, FrameEncoder, FrameSpec, Frames, TileDirectory, put_table};
use crate::pack::{FrameAt, Pin};

/// Decoded frames that a worker keeps: a unit rarely begins where a frame does.
const RECENT: usize = 4;

/// A frame and its contents.
type Decoded = (FrameAt, Arc<Vec<u8>>);

/// The source of the bytes of a unit.
pub(crate) trait UnitSource {
    /// Fills `out` with the bytes of the file from `offset` on.
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), Error>;
}

/// The destination of the frames of a unit: they are collected to be appended, or only measured.
pub(crate) trait FrameSink {
    /// Encodes `raw` into a frame and returns its length. The first `table` bytes are the table of
    /// a gathered frame.
    fn frame(
        &mut self,
        encoder: &mut FrameEncoder,
        spec: &FrameSpec<'_>,
        raw: &[u8],
        table: usize,
    ) -> Result<u32, Error>;

    /// Encodes a tile into a frame, as dense as `choice` says, and returns its length.
    fn tile(
        &mut self,
        encoder: &mut FrameEncoder,
        choice: &mut DensityChoice,
        spec: &FrameSpec<'_>,
        raw: &[u8],
    ) -> Result<u32, Error>;
}

/// State kept from unit to unit and from file to file: consecutive files are often alike, and the
/// encoder remembers the best plan for the previous one.
pub(crate) struct UnitTools {
    pub(crate) encoder: FrameEncoder,
    raw: Vec<u8>,
    tile: Vec<u8>,
}

impl UnitTools {
    pub(crate) fn new() -> Self {
        Self {
            encoder: FrameEncoder::new(),
            raw: Vec::new(),
            tile: Vec::new(),
        }
    }
}

/// Encodes units of a file.
pub(crate) struct UnitEncoder<'a, R, W> {
    pub(crate) ino: Ino,
    pub(crate) effort: Effort,
    pub(crate) source: R,
    pub(crate) sink: W,
    pub(crate) tools: &'a mut UnitTools,
}

/// How the frames of a unit are put together.
pub(crate) enum Draft {
    Frame {
        table: usize,
        raw_len: usize,
    },
    Tiles {
        offset: u64,
        raw_len: u64,
        directory: usize,
        /// Stored bytes of the directory.
        directory_len: u32,
    },
}

impl<R: UnitSource, W: FrameSink> UnitEncoder<'_, R, W> {
    /// Encodes a unit.
    pub(crate) fn encode(&mut self, unit: &Unit) -> Result<Draft, Error> {
        match unit {
            Unit::Gather(pieces) => self.encode_pieces(pieces),
            Unit::Array(array) => {
                let order = array.geometry.order();
                let lengths = self.encode_tiles(array, order.into_iter())?;
                self.encode_directory(array, &lengths)
            }
        }
    }

    fn encode_pieces(&mut self, pieces: &[Range<u64>]) -> Result<Draft, Error> {
        self.tools.raw.clear();
        put_table(&mut self.tools.raw, pieces);
        let table = self.tools.raw.len();
        for piece in pieces {
            self.read(piece)?;
        }
        let spec = FrameSpec {
            kind: FrameKind::Gather,
            ino: self.ino,
            offset: pieces.first().map_or(0, |piece| piece.start),
            hint: Hint::Unknown,
            effort: self.effort,
        };
        let UnitTools { encoder, raw, .. } = &mut *self.tools;
        self.sink.frame(encoder, &spec, raw, table)?;
        Ok(Draft::Frame {
            table,
            raw_len: raw.len(),
        })
    }

    /// Encodes some tiles of an array; returns their lengths.
    pub(crate) fn encode_tiles(
        &mut self,
        array: &Array,
        numbers: impl Iterator<Item = u32>,
    ) -> Result<Vec<u32>, Error> {
        let Array {
            offset, geometry, ..
        } = array;
        self.tools.raw.clear();
        self.read(&(*offset..offset + geometry.len()))?;
        let UnitTools { encoder, raw, tile } = &mut *self.tools;
        let fields = geometry.fields().iter();
        let mut choices: Vec<DensityChoice> = fields.map(|_| DensityChoice::default()).collect();
        let mut lengths = Vec::with_capacity(numbers.size_hint().0);
        for number in numbers {
            geometry.extract(raw, number as usize, tile);
            let (field, _, shape) = geometry.tile(number as usize);
            let element = array.elements.get(field).copied().flatten();
            let shape = tile_shape(&shape, element.as_ref());
            let spec = FrameSpec {
                kind: FrameKind::Tile,
                ino: self.ino,
                offset: *offset,
                hint: tile_hint(element.as_ref(), &shape),
                effort: self.effort,
            };
            let choice = &mut choices[field];
            lengths.push(self.sink.tile(encoder, choice, &spec, tile)?);
        }
        Ok(lengths)
    }

    /// Encodes the directory of an array, which has a length for every tile.
    pub(crate) fn encode_directory(
        &mut self,
        array: &Array,
        lengths: &[u32],
    ) -> Result<Draft, Error> {
        let directory = TileDirectory::encode(&array.geometry, lengths);
        let spec = FrameSpec {
            kind: FrameKind::Tiles,
            ino: self.ino,
            offset: array.offset,
            hint: Hint::Unknown,
            effort: Effort::Zstd(3),
        };
        let encoder = &mut self.tools.encoder;
        let directory_len = self.sink.frame(encoder, &spec, &directory, 0)?;
        Ok(Draft::Tiles {
            offset: array.offset,
            raw_len: array.geometry.len(),
            directory: directory.len(),
            directory_len,
        })
    }

    /// Appends a range of the file to the bytes of the unit.
    fn read(&mut self, range: &Range<u64>) -> Result<(), Error> {
        let raw = &mut self.tools.raw;
        let base = raw.len();
        raw.resize(base + (range.end - range.start) as usize, 0);
        self.source.read(range.start, &mut raw[base..])
    }
}

/// The extents of a file when they were noted.
pub(super) struct NotedExtents<'a> {
    frames: &'a Frames,
    ino: Ino,
    noted: &'a ExtentMap,
    recent: VecDeque<Decoded>,
}

impl UnitSource for NotedExtents<'_> {
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        let (frames, ino, recent) = (self.frames, self.ino, &mut self.recent);
        for extent in self.noted.range(offset..offset + out.len() as u64) {
            let at = (extent.offset - offset) as usize;
            let out = &mut out[at..at + extent.len as usize];
            frames.copy_extent_from(&extent, ino, out, |part, offset| {
                let key = part.frame_at();
                if let Some((_, raw)) = recent.iter().find(|(at, _)| *at == key) {
                    return Ok(Arc::clone(raw));
                }
                let raw = frames.get_once(part, ino, offset)?;
                recent.truncate(RECENT - 1);
                recent.push_front((key, Arc::clone(&raw)));
                Ok(raw)
            })?;
        }
        Ok(())
    }
}

/// Collects the frames of a unit, to be appended to a pack.
pub(super) struct Collected<'a> {
    frames: &'a Frames,
    batch: &'a mut FrameBatch,
}

impl FrameSink for Collected<'_> {
    fn frame(
        &mut self,
        encoder: &mut FrameEncoder,
        spec: &FrameSpec<'_>,
        raw: &[u8],
        _table: usize,
    ) -> Result<u32, Error> {
        self.frames.encode(encoder, spec, raw, self.batch)
    }

    fn tile(
        &mut self,
        encoder: &mut FrameEncoder,
        choice: &mut DensityChoice,
        spec: &FrameSpec<'_>,
        raw: &[u8],
    ) -> Result<u32, Error> {
        self.frames
            .make(encoder, spec.kind, raw.len(), |encoder, sequence| {
                choice.encode(encoder, spec, sequence, raw)
            })?;
        Ok(encoder.append_to(self.batch))
    }
}

/// State that a worker keeps from file to file.
pub(super) struct Tools {
    unit: UnitTools,
    batch: FrameBatch,
}

impl Tools {
    pub(super) fn new() -> Self {
        Self {
            unit: UnitTools::new(),
            batch: FrameBatch::default(),
        }
    }
}

/// Encodes units of a file in the store.
pub(super) type StoredUnitEncoder<'a> = UnitEncoder<'a, NotedExtents<'a>, Collected<'a>>;

impl<'a> StoredUnitEncoder<'a> {
    pub(super) fn new(
        frames: &'a Frames,
        file: &File,
        noted: &'a ExtentMap,
        effort: Effort,
        tools: &'a mut Tools,
    ) -> Self {
        Self {
            ino: file.ino,
            effort,
            source: NotedExtents {
                frames,
                ino: file.ino,
                noted,
                recent: VecDeque::new(),
            },
            sink: Collected {
                frames,
                batch: &mut tools.batch,
            },
            tools: &mut tools.unit,
        }
    }

    /// Encodes a unit and returns its frames.
    pub(super) fn collect(&mut self, unit: &Unit) -> Result<(Draft, &FrameBatch), Error> {
        self.sink.batch.clear();
        let draft = self.encode(unit)?;
        Ok((draft, self.sink.batch))
    }

    /// Stored bytes of a unit: of an array only some `tiles`, spread over it, are encoded and stand
    /// for the others.
    pub(super) fn try_out(&mut self, unit: &Unit, tiles: usize) -> Result<u64, Error> {
        let Unit::Array(array) = unit else {
            let (_, frames) = self.collect(unit)?;
            return Ok(frames.len());
        };
        self.sink.batch.clear();
        let order = array.geometry.order();
        let raw: usize = some_tiles(&order, tiles)
            .map(|number| array.geometry.tile_len(number as usize))
            .sum();
        self.encode_tiles(array, some_tiles(&order, tiles))?;
        let share = unit.raw() as f64 / raw.max(1) as f64;
        Ok((self.sink.batch.len() as f64 * share).round() as u64)
    }
}

impl Settler {
    /// Appends a unit to one of `lanes` lanes. The pin keeps its pack until the extents are committed.
    pub(super) fn append(
        &self,
        unit: &Unit,
        draft: Draft,
        frames: &FrameBatch,
        lanes: usize,
    ) -> Result<(Vec<Extent>, Pin), Error> {
        let lane = self.lanes.choose(lanes.max(1), frames.len());
        let packs = &self.volume.frames.packs;
        let (appended, pin) = packs.append(lane, frames.bytes(), frames.entries())?;
        self.volume.space.spend(frames.len());
        let mut extents = Vec::new();
        match draft {
            Draft::Frame { table, raw_len } => {
                let mut skip = table;
                for Range { start, end } in unit.ranges() {
                    let part = FramePart {
                        pack: appended.pack,
                        at: appended.at,
                        frame_len: frames.len() as u32,
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
                directory,
                directory_len,
            } => {
                let body = frames.len() - u64::from(directory_len);
                let part = TilePart {
                    pack: appended.pack,
                    at: appended.at + body,
                    frame_len: directory_len,
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
                extents.extend(unit.ranges().filter_map(|range| whole.slice(range)));
            }
        }
        Ok((extents, pin))
    }
}

/// Some of the tiles of an array, spread over it. `order` is the order in which they are stored.
pub(crate) fn some_tiles(order: &[u32], tiles: usize) -> impl Iterator<Item = u32> {
    let step = (order.len() / tiles.max(1)).max(1);
    order.iter().copied().skip(step / 2).step_by(step)
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

/// The hint to the codec about a tile; `shape` comes from [`tile_shape`].
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

/// Whether a unit is already stored in its settled form.
pub(super) fn is_done(unit: &Unit, noted: &ExtentMap, frames: &Frames, ino: Ino) -> bool {
    match unit {
        Unit::Array(Array {
            offset, geometry, ..
        }) => {
            let mut extents = unit.ranges().flat_map(|range| noted.range(range));
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
            // A gathered frame has its table before the bytes; other frames have something else
            // there, or nothing.
            let mut table = Vec::new();
            put_table(&mut table, pieces);
            let mut frame: Option<FrameAt> = None;
            let (mut skip, mut raw_len) = (table.len() as u64, 0);
            for &Range { start, end } in pieces {
                let mut extents = noted.range(start..end);
                let (Some(extent), None) = (extents.next(), extents.next()) else {
                    return false;
                };
                let Place::Frame(part) = &extent.place else {
                    return false;
                };
                let at = part.frame_at();
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
