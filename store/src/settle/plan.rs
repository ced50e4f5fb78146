//! Splitting a file into units: arrays of tiles, linear frames and gathered pieces.

use std::ops::Range;
use std::sync::Arc;

use shale_codec::{ByteOrder, ElementKind};
use shale_index::extent::Extent;

use crate::file::Element;
use crate::frame::{Field, Geometry};

/// Sizes of the parts of a file, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// A tile, about.
    pub(crate) tile: u64,
    /// A tile in the fastest dimension at least: the kernel reads whole pages.
    pub(crate) row: u64,
    /// Arrays below this stay linear.
    pub(crate) array: u64,
    /// A run outside arrays below this is gathered with others.
    pub(crate) piece: u64,
    /// Gathered pieces make frames of about this size.
    pub(crate) gather: u64,
    /// Linear frames.
    pub(crate) linear: u64,
    /// The front of a large file is stored a second time, linear: a program that opens the
    /// file reads its header, and the kernel reads some of the first variable ahead.
    pub(crate) front: u64,
    /// Files below this have no such front.
    pub(crate) large: u64,
}

impl Sizes {
    pub(crate) const USUAL: Self = Self {
        tile: 512 << 10,
        row: 4096,
        array: 64 << 10,
        piece: 128 << 10,
        gather: 512 << 10,
        linear: 1 << 20,
        front: 64 << 10,
        large: 16 << 20,
    };

    /// For a file with chunks of `chunk` bytes: linear frames have the same size, but leave room
    /// for the table of a gathered frame in the largest frame.
    pub(crate) fn for_chunks(chunk: u64) -> Self {
        Self {
            linear: chunk.min(8 << 20),
            ..Self::USUAL
        }
    }

    /// Length of the front of a file.
    pub(super) fn front_of(&self, size: u64) -> u64 {
        if size >= self.large { self.front } else { 0 }
    }
}

/// The layout of a range of a file: equal records, each with blocks of numbers at the same places.
/// A plain array has a record for every step of its slowest dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Region {
    /// First byte in the file.
    pub offset: u64,
    /// Number of records.
    pub records: u64,
    /// Bytes from one record to the next.
    pub record: u64,
    /// Blocks within a record, in order and disjoint.
    pub blocks: Vec<Block>,
}

/// An N-dimensional block of numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its first byte in the record.
    pub at: u64,
    /// Bytes of an element.
    pub width: u32,
    /// What an element is.
    pub kind: ElementKind,
    /// Its byte order.
    pub order: ByteOrder,
    /// Extents within a record, the slowest first; none for a single element.
    pub dims: Vec<u64>,
}

/// An array of tiles. The arrays of a region share geometry and elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Array {
    /// Its first byte in the file.
    pub(crate) offset: u64,
    /// Bytes before this offset are read from elsewhere.
    pub(crate) from: u64,
    pub(crate) geometry: Arc<Geometry>,
    /// For each field, what its elements are.
    pub(crate) elements: Arc<[Option<Element>]>,
}

/// A part of a file that is encoded as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Tiles that share a directory.
    Array(Array),
    /// Ranges that become one frame.
    Gather(Vec<Range<u64>>),
}

impl Unit {
    /// Bytes of the file in it.
    pub(crate) fn raw(&self) -> u64 {
        self.ranges().map(|range| range.end - range.start).sum()
    }

    /// From the first byte that is needed to encode it to the last.
    pub(crate) fn span(&self) -> Range<u64> {
        match self {
            Self::Array(Array {
                offset, geometry, ..
            }) => *offset..offset + geometry.len(),
            Self::Gather(pieces) => {
                let start = pieces.first().map_or(0, |piece| piece.start);
                start..pieces.last().map_or(0, |piece| piece.end)
            }
        }
    }

    /// The ranges of the file that it holds.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        let ranges = match self {
            Self::Array(Array {
                offset,
                from,
                geometry,
                ..
            }) => std::iter::once(*from.max(offset)..offset + geometry.len()).collect(),
            Self::Gather(pieces) => pieces.clone(),
        };
        ranges.into_iter()
    }
}

impl Region {
    /// The end of the region; `None` when its parts are inconsistent.
    fn end(&self) -> Option<u64> {
        let mut end = 0;
        for block in &self.blocks {
            if block.at < end || block.width == 0 {
                return None;
            }
            let len = block
                .dims
                .iter()
                .try_fold(u64::from(block.width), |all, &n| all.checked_mul(n))?;
            if len == 0 {
                return None;
            }
            end = block.at.checked_add(len)?;
        }
        if self.blocks.is_empty() || end > self.record {
            return None;
        }
        self.records
            .checked_mul(self.record)?
            .checked_add(self.offset)
    }
}

/// The arrays of a file. They are cut on demand: a header may claim any number of them, most of
/// them in holes.
pub(crate) struct Arrays<'a> {
    /// In the order of the file and disjoint, with their ends.
    regions: Vec<(&'a Region, u64)>,
    limit: u64,
    front: u64,
    sizes: &'a Sizes,
}

impl<'a> Arrays<'a> {
    /// Arrays of at most `limit` bytes. Leaves out regions that are small, overlap others, extend
    /// beyond the end of the file or are inconsistent.
    pub(crate) fn new(regions: &'a [Region], size: u64, limit: u64, sizes: &'a Sizes) -> Self {
        let mut sorted: Vec<&Region> = regions.iter().collect();
        sorted.sort_by_key(|region| region.offset);
        let mut good = Vec::new();
        let mut end = 0;
        for region in sorted {
            let Some(stop) = region.end().filter(|&stop| stop <= size) else {
                continue;
            };
            if stop - region.offset >= sizes.array && region.offset >= end {
                good.push((region, stop));
                end = stop;
            }
        }
        Self {
            regions: good,
            limit,
            front: sizes.front_of(size),
            sizes,
        }
    }

    /// The arrays that begin in a range, in order.
    pub(crate) fn between(&self, range: Range<u64>) -> Vec<Unit> {
        let mut units = Vec::new();
        let first = self.regions.partition_point(|&(_, end)| end <= range.start);
        for (region, _) in &self.regions[first..] {
            if region.offset >= range.end {
                break;
            }
            self.split(region, range.clone(), &mut units);
        }
        units
    }

    fn split(&self, region: &Region, within: Range<u64>, units: &mut Vec<Unit>) {
        if region.record > self.limit {
            return self.split_records(region, within, units);
        }
        let most = (self.limit / region.record).clamp(1, region.records);
        // As deep as the deepest tile, so that only the last array has shallow ones.
        let depth = region
            .blocks
            .iter()
            .map(|block| tile(most, &block.dims, block.width, self.sizes).0)
            .max()
            .unwrap_or(1);
        let arrays = region.records.div_ceil(most);
        let each = (region.records.div_ceil(arrays).div_ceil(depth) * depth).min(most.max(depth));
        let mut first = within
            .start
            .saturating_sub(region.offset)
            .div_ceil(region.record)
            .next_multiple_of(each);
        // All but the last are alike.
        let mut like: Option<(u64, Option<Shape>)> = None;
        while first < region.records {
            let offset = region.offset + first * region.record;
            if offset >= within.end {
                break;
            }
            let records = each.min(region.records - first);
            let shape = match like.take() {
                Some((of, shape)) if of == records => shape,
                _ => geometry(region, records, self.sizes),
            };
            if let Some((geometry, elements)) = &shape
                && offset + geometry.len() > self.front
            {
                units.push(Unit::Array(Array {
                    offset,
                    from: self.front,
                    geometry: Arc::clone(geometry),
                    elements: Arc::clone(elements),
                }));
            }
            like = Some((records, shape));
            first += records;
        }
    }

    /// Not even one record fits: each block of each record becomes a separate array.
    fn split_records(&self, region: &Region, within: Range<u64>, units: &mut Vec<Unit>) {
        let Range {
            start: from,
            end: to,
        } = within;
        let first = from.saturating_sub(region.offset) / region.record;
        for record in first..region.records {
            let start = region.offset + record * region.record;
            if start >= to {
                break;
            }
            for block in &region.blocks {
                let Some((&records, dims)) = block.dims.split_first() else {
                    continue;
                };
                let inner = Region {
                    offset: start + block.at,
                    records,
                    record: dims.iter().product::<u64>() * u64::from(block.width),
                    blocks: vec![Block {
                        at: 0,
                        dims: dims.to_vec(),
                        ..block.clone()
                    }],
                };
                let len = inner.records * inner.record;
                if len >= self.sizes.array && inner.offset < to && inner.offset + len > from {
                    self.split(&inner, from..to, units);
                }
            }
        }
    }
}

/// How an array is cut, and the elements of each of its fields.
type Shape = (Arc<Geometry>, Arc<[Option<Element>]>);

/// Fields for the blocks of a region and for the gaps between them.
fn geometry(region: &Region, records: u64, sizes: &Sizes) -> Option<Shape> {
    let mut fields = Vec::new();
    let mut elements = Vec::new();
    let mut end = 0u64;
    let gap = |range: Range<u64>, fields: &mut Vec<Field>| {
        if range.is_empty() {
            return false;
        }
        let len = range.end - range.start;
        fields.push(Field {
            at: range.start,
            dims: vec![len],
            tile: gap_tile(records, len, sizes),
        });
        true
    };
    for block in &region.blocks {
        if gap(end..block.at, &mut fields) {
            elements.push(None);
        }
        let width = u64::from(block.width);
        let (depth, shape) = tile(records, &block.dims, block.width, sizes);
        let in_bytes = |extents: &[u64]| -> Option<Vec<u64>> {
            let mut extents = extents.to_vec();
            match extents.last_mut() {
                Some(last) => *last = last.checked_mul(width)?,
                None => extents.push(width),
            }
            Some(extents)
        };
        let dims = in_bytes(&block.dims)?;
        let len = dims.iter().try_fold(1u64, |all, &n| all.checked_mul(n))?;
        end = block.at.checked_add(len)?;
        fields.push(Field {
            at: block.at,
            dims,
            tile: std::iter::once(depth).chain(in_bytes(&shape)?).collect(),
        });
        elements.push(Some(Element {
            width: block.width,
            kind: block.kind,
            order: block.order,
        }));
    }
    if gap(end..region.record, &mut fields) {
        elements.push(None);
    }
    let geometry = Geometry::new(records, region.record, fields)?;
    Some((Arc::new(geometry), elements.into()))
}

/// Extents of a tile of what lies between blocks: records, then bytes.
fn gap_tile(records: u64, len: u64, sizes: &Sizes) -> Vec<u64> {
    let row = len.min(sizes.tile);
    vec![(sizes.tile / row).clamp(1, records), row]
}

/// Extents of a tile (records; then as `dims`, in elements): about the requested number of bytes
/// and nearly cubic, but not narrower than a page in the fastest dimension.
fn tile(records: u64, dims: &[u64], width: u32, sizes: &Sizes) -> (u64, Vec<u64>) {
    let width = u64::from(width.max(1));
    let extents: Vec<u64> = std::iter::once(records)
        .chain(dims.iter().copied())
        .collect();
    let mut shape = vec![1; extents.len()];
    let mut room = (sizes.tile / width).max(1);
    for i in (0..extents.len()).rev() {
        let open = extents[..=i].iter().filter(|&&extent| extent > 1).count();
        let mut side = root(room, open.max(1) as u32);
        if i + 1 == extents.len() {
            side = side.max(sizes.row / width);
        }
        shape[i] = even(extents[i], side.clamp(1, room.max(1)));
        room = (room / shape[i]).max(1);
    }
    // Where slow dimensions are short, the faster ones take the rest.
    for i in (0..extents.len()).rev() {
        if room < 2 {
            break;
        }
        let grown = even(extents[i], shape[i].saturating_mul(room));
        room = (room * shape[i] / grown).max(1);
        shape[i] = grown;
    }
    (shape[0], shape[1..].to_vec())
}

/// Cuts `extent` into equal parts of at most about `side`.
fn even(extent: u64, side: u64) -> u64 {
    if extent <= side + side / 2 {
        return extent;
    }
    extent.div_ceil(extent.div_ceil(side))
}

/// The integer root.
fn root(value: u64, degree: u32) -> u64 {
    ((value as f64).powf(1.0 / f64::from(degree)) + 1e-9) as u64
}

/// Cuts the stored bytes outside arrays. `extents` are the stored ranges in order.
pub(crate) fn rest(extents: &[Extent], arrays: &[Range<u64>], sizes: &Sizes) -> Vec<Unit> {
    let (mut units, mut linear) = (Vec::new(), Vec::new());
    let mut pieces: Vec<Range<u64>> = Vec::new();
    let mut gathered = 0;
    for Range { start, end } in runs(extents, arrays) {
        if end - start < sizes.piece {
            gathered += end - start;
            pieces.push(start..end);
            if gathered >= sizes.gather {
                units.push(Unit::Gather(std::mem::take(&mut pieces)));
                gathered = 0;
            }
            continue;
        }
        let mut at = start;
        while at < end {
            // Aligned as chunks are, so that rewriting a chunk replaces whole frames.
            let stop = ((at / sizes.linear + 1) * sizes.linear).min(end);
            linear.push(Unit::Gather(std::iter::once(at..stop).collect()));
            at = stop;
        }
    }
    if !pieces.is_empty() {
        units.push(Unit::Gather(pieces));
    }
    // Small pieces in front: the bytes needed to open the file lie together.
    units.append(&mut linear);
    units
}

/// Stored ranges outside arrays, those that touch joined.
fn runs(extents: &[Extent], arrays: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    let mut add = |run: Range<u64>| {
        if run.is_empty() {
            return;
        }
        match runs.last_mut() {
            Some(last) if last.end == run.start => last.end = run.end,
            _ => runs.push(run),
        }
    };
    let mut next = 0;
    for extent in extents {
        let mut at = extent.offset;
        while at < extent.end() {
            while arrays.get(next).is_some_and(|array| array.end <= at) {
                next += 1;
            }
            match arrays.get(next) {
                Some(array) if array.start < extent.end() => {
                    add(at..array.start);
                    at = at.max(array.end);
                }
                _ => {
                    add(at..extent.end());
                    at = extent.end();
                }
            }
        }
    }
    runs
}

#[cfg(test)]
mod tests;
