//! From a chunk index to extents.

use super::btree1::{self, Kind};
use super::dataspace::Dataspace;
use super::file::File;
use super::filters::Filters;
use super::storage::{Chunked, Index};
use super::{btree2, extensible_array, fixed_array};
use crate::Error;
use crate::builder::Builder;
use crate::extent::{Coding, Content, LayoutExtent};
use crate::fields::Fields;

/// Arrays of chunks are read in pieces of this size.
const PIECE: u64 = 32 << 10;

/// Where one chunk is stored.
#[derive(Clone, Copy)]
pub(crate) struct Stored {
    pub(crate) address: u64,
    /// Its length, where the index says so.
    pub(crate) len: Option<u64>,
    /// Filters that were not applied, by bit.
    pub(crate) skipped: u32,
}

/// Makes extents of the chunks of one dataset.
pub(crate) struct Sink<'a> {
    pub(crate) builder: &'a mut Builder,
    pub(crate) variable: u32,
    pub(crate) space: &'a Dataspace,
    pub(crate) chunked: &'a Chunked,
    pub(crate) filters: &'a Filters,
    /// Bytes of a chunk before the filters.
    pub(crate) chunk_len: u64,
}

/// Finds all chunks.
pub(crate) fn read(file: &mut File<'_, '_>, sink: &mut Sink<'_>) -> Result<(), Error> {
    let Some(address) = sink.chunked.address else {
        return Ok(());
    };
    let rank = sink.chunked.shape.len();
    match sink.chunked.index {
        Index::BTree1 => {
            let key_len = 8 + 8 * (rank + 1);
            btree1::walk(
                file,
                Kind::Chunks,
                address,
                key_len,
                &mut |file, key, child| {
                    let mut fields = Fields::new("chunk key", key);
                    let stored = Stored {
                        len: Some(u64::from(fields.u32()?)),
                        skipped: fields.u32()?,
                        address: child,
                    };
                    let mut grid = Vec::with_capacity(rank);
                    for &edge in &sink.chunked.shape {
                        grid.push(fields.uint(8)? / edge);
                    }
                    sink.chunk(file, &grid, stored)
                },
            )
        }
        Index::Single(filtered) => {
            let stored = Stored {
                address,
                len: filtered.map(|(len, _)| len),
                skipped: filtered.map_or(0, |(_, skipped)| skipped),
            };
            sink.chunk(file, &vec![0; rank], stored)
        }
        Index::Implicit => implicit(file, sink, address),
        Index::FixedArray => fixed_array::read(file, sink, address),
        Index::ExtensibleArray => extensible_array::read(file, sink, address),
        Index::BTree2 => btree2::walk(file, address, &mut |file, kind, record| {
            let mut fields = Fields::new("chunk record", record);
            let filtered = match kind {
                10 => false,
                11 => true,
                _ => {
                    return Err(Error::Unsupported {
                        what: "B-tree of chunks of type",
                        found: u64::from(kind),
                    });
                }
            };
            let tail = 8 * rank;
            let width = record.len().saturating_sub(tail);
            let stored = stored(file, &mut fields, width, filtered)?;
            let grid = (0..rank)
                .map(|_| fields.uint(8))
                .collect::<Result<Vec<_>, _>>()?;
            match stored {
                Some(stored) => sink.chunk(file, &grid, stored),
                None => Ok(()),
            }
        }),
    }
}

/// An entry of `width` bytes: an address, and for filtered chunks length and filters skipped.
fn stored(
    file: &File<'_, '_>,
    fields: &mut Fields<'_>,
    width: usize,
    filtered: bool,
) -> Result<Option<Stored>, Error> {
    let address = fields.address(file.offsets)?;
    let (len, skipped) = if filtered {
        let rest = width.saturating_sub(file.offsets + 4);
        (Some(fields.uint(rest)?), fields.u32()?)
    } else {
        (None, 0)
    };
    Ok(address.map(|address| Stored {
        address,
        len,
        skipped,
    }))
}

/// All chunks lie one after the other.
fn implicit(file: &mut File<'_, '_>, sink: &mut Sink<'_>, address: u64) -> Result<(), Error> {
    let counts = sink.counts(false);
    let total = counts
        .iter()
        .try_fold(1u64, |sum, &one| sum.checked_mul(one?));
    let len = total.and_then(|total| total.checked_mul(sink.chunk_len));
    let all = sink.counts(true) == counts && sink.filters.is_empty();
    let Some((len, true)) = len.map(|len| (len, all)) else {
        // Never written so: the index is for datasets of fixed shape without filters.
        return Err(Error::Unsupported {
            what: "implicit chunk index of a dataset of rank",
            found: counts.len() as u64,
        });
    };
    let offset = file.offset_of(address)?;
    sink.place(file, offset, len, Some(0), Coding::Plain)
}

impl Sink<'_> {
    /// Chunks along each dimension, now or at most; nothing where there is no limit.
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
        file: &mut File<'_, '_>,
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

    /// Takes in the chunk at this place of the grid.
    pub(crate) fn chunk(
        &mut self,
        file: &mut File<'_, '_>,
        grid: &[u64],
        stored: Stored,
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

    fn place(
        &mut self,
        file: &mut File<'_, '_>,
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

    /// The number of a chunk in row-major order, and whether it sticks out of the dataset.
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
