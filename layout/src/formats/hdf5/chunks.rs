//! Reads the chunk index of a dataset, of whichever kind.

use super::btree1::{self, TreeKind};
use super::chunk_sink::{ChunkSink, StoredChunk, stored};
use super::file::Hdf5File;
use super::storage::Index;
use super::{btree2, extensible_array, fixed_array};
use crate::error::Error;
use crate::extent::Coding;
use crate::fields::Fields;

/// Finds all chunks.
pub(crate) fn read(file: &mut Hdf5File<'_, '_>, sink: &mut ChunkSink<'_>) -> Result<(), Error> {
    let Some(address) = sink.chunked.address else {
        return Ok(());
    };
    let rank = sink.chunked.shape.len();
    match sink.chunked.index {
        Index::BTree1 => {
            let key_len = 8 + 8 * (rank + 1);
            btree1::walk(
                file,
                TreeKind::Chunks,
                address,
                key_len,
                &mut |file, key, child| {
                    let mut fields = Fields::new("chunk key", key);
                    let stored = StoredChunk {
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
            let stored = StoredChunk {
                address,
                len: filtered.map(|chunk| chunk.len),
                skipped: filtered.map_or(0, |chunk| chunk.skipped),
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

/// All chunks lie one after the other.
fn implicit(
    file: &mut Hdf5File<'_, '_>,
    sink: &mut ChunkSink<'_>,
    address: u64,
) -> Result<(), Error> {
    let counts = sink.counts(false);
    let total = counts
        .iter()
        .try_fold(1u64, |sum, &one| sum.checked_mul(one?));
    let len = total.and_then(|total| total.checked_mul(sink.chunk_len));
    let all = sink.counts(true) == counts && sink.filters.is_empty();
    let Some((len, true)) = len.map(|len| (len, all)) else {
        // No library writes this: the index is for datasets of fixed shape without filters.
        return Err(Error::Unsupported {
            what: "implicit chunk index of a dataset of rank",
            found: counts.len() as u64,
        });
    };
    let offset = file.offset_of(address)?;
    sink.place(file, offset, len, Some(0), Coding::Plain)
}
