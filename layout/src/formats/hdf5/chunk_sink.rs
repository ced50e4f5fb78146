//! Turns the chunks that an index lists into extents.

use super::dataspace::Dataspace;
use super::file::Hdf5File;
use super::filters::Filters;
use super::storage::Chunked;
use crate::builder::LayoutBuilder;
use crate::error::Error;
use crate::extent::{Coding, Content, LayoutExtent};
use crate::fields::Fields;

/// Arrays of chunks are read in pieces of this size.
const PIECE: u64 = 32 << 10;

/// Where one chunk is stored.
#[derive(Clone, Copy)]
pub(crate) struct StoredChunk {
    pub(crate) address: u64,
    /// Its length, where the index says so.
    pub(crate) len: Option<u64>,
    /// Filters that were not applied, by bit.
    pub(crate) skipped: u32,
}

/// Adds the chunks of one dataset to the layout.
pub(crate) struct ChunkSink<'a> {
    pub(crate) builder: &'a mut LayoutBuilder,
    pub(crate) variable: u32,
    pub(crate) space: &'a Dataspace,
    pub(crate) chunked: &'a Chunked,
    pub(crate) filters: &'a Filters,
    /// Bytes of a chunk before the filters.
    pub(crate) chunk_len: u64,
}

/// An entry of `width` bytes: an address, and for filtered chunks length and filters skipped.
pub(crate) fn stored(
    file: &Hdf5File<'_, '_>,
    fields: &mut Fields<'_>,
    width: usize,
    filtered: bool,
) -> Result<Option<StoredChunk>, Error> {
    let address = fields.address(file.offsets)?;
    let (len, skipped) = if filtered {
        let rest = width.saturating_sub(file.offsets + 4);
        (Some(fields.uint(rest)?), fields.u32()?)
    } else {
        (None, 0)
    };
    Ok(address.map(|address| StoredChunk {
        address,
        len,
        skipped,
    }))
}

impl ChunkSink<'_> {
    /// Chunks along each dimension, now or at most; `None` where there is no limit.
    pub(crate) fn counts(&self, at_most: bool) -> Vec<Option<u64>> {
        let edges = self.chunked.shape.iter();
        edges
            .zip(&self.space.shape)
            .zip(&self.space.limits)
            .map(|((edge, &extent), &limit)| {
                let extent = if at_most { limit? } else { extent };
                Some(extent.div_ceil(*edge))
            })
            .collect()
    }

    /// Reads `count` entries of `width` bytes at `address`; `place` turns the number of an
    /// entry, counted from `first`, into the place of its chunk in the grid.
    pub(crate) fn entries(
        &mut self,
        file: &mut Hdf5File<'_, '_>,
        entries: Entries,
        place: &dyn Fn(u64) -> Option<Vec<u64>>,
    ) -> Result<(), Error> {
        let width = u64::from(entries.width);
        if width < file.offsets as u64 {
            return Err(Error::Malformed {
                what: "width of a chunk entry",
                found: width,
            });
        }
        let most = (PIECE / width).max(1);
        let mut done = 0;
        while done < entries.count {
            let count = most.min(entries.count - done);
            let at = entries.address.checked_add(done * width);
            let piece = file.read(at.unwrap_or(u64::MAX), count * width)?;
            for (number, entry) in piece.chunks_exact(width as usize).enumerate() {
                let mut fields = Fields::new("chunk entry", entry);
                let width = entry.len();
                let stored = stored(file, &mut fields, width, entries.filtered)?;
                let number = entries.first.saturating_add(done + number as u64);
                if let Some(stored) = stored
                    && let Some(grid) = place(number)
                {
                    self.chunk(file, &grid, stored)?;
                }
            }
            done += count;
        }
        Ok(())
    }

    /// Adds the chunk at this place of the grid.
    pub(crate) fn chunk(
        &mut self,
        file: &mut Hdf5File<'_, '_>,
        grid: &[u64],
        stored: StoredChunk,
    ) -> Result<(), Error> {
        let Some((number, at_edge)) = self.number(grid) else {
            // Outside the dataset, which has shrunk.
            return Ok(());
        };
        let mut coding = self.filters.coding(stored.skipped);
        if at_edge && self.chunked.edges_unfiltered {
            coding = Coding::Plain;
        }
        let offset = file.offset_of(stored.address)?;
        match coding {
            Coding::Plain if stored.len.is_none_or(|len| len >= self.chunk_len) => {
                self.place(file, offset, self.chunk_len, Some(number), coding)
            }
            Coding::Plain => Ok(()),
            _ => {
                let len = stored.len.unwrap_or(self.chunk_len);
                self.place(file, offset, len, None, coding)
            }
        }
    }

    pub(crate) fn place(
        &mut self,
        file: &mut Hdf5File<'_, '_>,
        offset: u64,
        len: u64,
        first: Option<u64>,
        coding: Coding,
    ) -> Result<(), Error> {
        let variable = self.variable;
        let content = match first {
            Some(first) => Content::Chunks {
                variable,
                first,
                chunk_len: self.chunk_len,
            },
            None => Content::Filtered { variable, coding },
        };
        let extent = LayoutExtent {
            offset,
            len,
            content,
        };
        self.builder.place(file.reader, extent)
    }

    /// The number of a chunk in row-major order, and whether it extends beyond the dataset.
    fn number(&self, grid: &[u64]) -> Option<(u64, bool)> {
        let mut number = 0u64;
        let mut at_edge = false;
        let edges = grid.iter().zip(&self.chunked.shape);
        for ((&at, &edge), &extent) in edges.zip(&self.space.shape) {
            let count = extent.div_ceil(edge);
            if at >= count {
                return None;
            }
            number = number.checked_mul(count)?.checked_add(at)?;
            at_edge |= at == count - 1 && extent % edge != 0;
        }
        Some((number, at_edge))
    }
}

/// A run of entries in an array of chunks.
#[derive(Clone, Copy)]
pub(crate) struct Entries {
    pub(crate) address: u64,
    pub(crate) count: u64,
    /// Bytes of an entry.
    pub(crate) width: u8,
    pub(crate) filtered: bool,
    /// Number of the first entry.
    pub(crate) first: u64,
}

/// The place in a grid of `counts` chunks of chunk `number`, the slowest dimension first; the
/// count of the slowest one does not matter.
pub(crate) fn unravel(number: u64, counts: &[u64]) -> Option<Vec<u64>> {
    let mut left = number;
    let mut grid = vec![0; counts.len()];
    for (at, &count) in grid.iter_mut().zip(counts).skip(1).rev() {
        *at = left.checked_rem(count)?;
        left /= count;
    }
    if let Some(slowest) = grid.first_mut() {
        *slowest = left;
    }
    Some(grid)
}
