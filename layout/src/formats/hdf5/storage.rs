//! Data layout messages: how a dataset is stored.

use super::file::Hdf5File;
use crate::error::Error;
use crate::fields::Fields;

const MAX_RANK: usize = 33;
const EDGES_UNFILTERED: u8 = 1;
const SINGLE_FILTERED: u8 = 2;

/// How the elements of a dataset are stored.
pub(crate) enum Storage {
    /// In the object header, or in other datasets.
    Elsewhere,
    /// In one piece; without an address when nothing was written.
    Contiguous { address: Option<u64> },
    /// In chunks.
    Chunked(Chunked),
}

pub(crate) struct Chunked {
    /// Shape of a chunk.
    pub(crate) shape: Vec<u64>,
    /// Bytes of an element.
    pub(crate) element_len: u64,
    /// Chunks at the edge do not go through the filters.
    pub(crate) edges_unfiltered: bool,
    pub(crate) index: Index,
    /// Where the index is; without one when nothing was written.
    pub(crate) address: Option<u64>,
}

/// How chunks are found.
#[derive(Clone, Copy)]
pub(crate) enum Index {
    BTree1,
    /// The one chunk is at the address.
    Single(Option<FilteredChunk>),
    /// The chunks lie at the address, one after the other.
    Implicit,
    FixedArray,
    ExtensibleArray,
    BTree2,
}

/// What is said of a chunk that went through filters.
#[derive(Clone, Copy)]
pub(crate) struct FilteredChunk {
    pub(crate) len: u64,
    /// The filters that were not applied, one bit for each.
    pub(crate) skipped: u32,
}

pub(crate) fn parse(file: &Hdf5File<'_, '_>, body: &[u8]) -> Result<Storage, Error> {
    let mut fields = Fields::new("data layout message", body);
    let version = fields.u8()?;
    match version {
        1 | 2 => old(file, fields),
        3..=5 => {
            let class = fields.u8()?;
            match class {
                0 | 3 => Ok(Storage::Elsewhere),
                1 => Ok(Storage::Contiguous {
                    address: fields.address(file.offsets)?,
                }),
                2 if version == 3 => {
                    let rank = usize::from(fields.u8()?);
                    let address = fields.address(file.offsets)?;
                    chunked(
                        &mut fields,
                        rank,
                        4,
                        |_| Ok((Index::BTree1, address)),
                        false,
                    )
                }
                2 => indexed(file, fields),
                _ => Err(Error::Unsupported {
                    what: "data layout class",
                    found: u64::from(class),
                }),
            }
        }
        _ => Err(Error::Unsupported {
            what: "data layout version",
            found: u64::from(version),
        }),
    }
}

/// Versions 1 and 2: class and dimensions before the address.
fn old(file: &Hdf5File<'_, '_>, mut fields: Fields<'_>) -> Result<Storage, Error> {
    let rank = usize::from(fields.u8()?);
    let class = fields.u8()?;
    fields.skip(5)?;
    match class {
        1 => Ok(Storage::Contiguous {
            address: fields.address(file.offsets)?,
        }),
        2 => {
            let address = fields.address(file.offsets)?;
            chunked(
                &mut fields,
                rank,
                4,
                |_| Ok((Index::BTree1, address)),
                false,
            )
        }
        _ => Ok(Storage::Elsewhere),
    }
}

/// Version 4 on: an index of one of several kinds.
fn indexed(file: &Hdf5File<'_, '_>, mut fields: Fields<'_>) -> Result<Storage, Error> {
    let flags = fields.u8()?;
    let rank = usize::from(fields.u8()?);
    let width = usize::from(fields.u8()?);
    let index = |fields: &mut Fields<'_>| {
        let kind = fields.u8()?;
        let index = match kind {
            1 if flags & SINGLE_FILTERED != 0 => Index::Single(Some(FilteredChunk {
                len: fields.uint(file.lengths)?,
                skipped: fields.u32()?,
            })),
            1 => Index::Single(None),
            2 => Index::Implicit,
            // The other indexes repeat their parameters in their own headers.
            3 => {
                fields.skip(1)?;
                Index::FixedArray
            }
            4 => {
                fields.skip(5)?;
                Index::ExtensibleArray
            }
            5 => {
                fields.skip(6)?;
                Index::BTree2
            }
            _ => {
                return Err(Error::Unsupported {
                    what: "chunk index type",
                    found: u64::from(kind),
                });
            }
        };
        Ok((index, fields.address(file.offsets)?))
    };
    let edges = flags & EDGES_UNFILTERED != 0;
    chunked(&mut fields, rank, width, index, edges)
}

/// The dimensions of a chunk, the last being the element's length, then the index.
fn chunked(
    fields: &mut Fields<'_>,
    rank: usize,
    width: usize,
    index: impl FnOnce(&mut Fields<'_>) -> Result<(Index, Option<u64>), Error>,
    edges_unfiltered: bool,
) -> Result<Storage, Error> {
    if rank == 0 || rank > MAX_RANK || width == 0 {
        return Err(Error::Malformed {
            what: "rank of a chunk",
            found: rank as u64,
        });
    }
    let mut shape = (0..rank)
        .map(|_| fields.uint(width))
        .collect::<Result<Vec<_>, _>>()?;
    let element_len = shape.pop().unwrap_or_default();
    if element_len == 0 || shape.contains(&0) {
        return Err(Error::Malformed {
            what: "shape of a chunk",
            found: 0,
        });
    }
    let (index, address) = index(fields)?;
    Ok(Storage::Chunked(Chunked {
        shape,
        element_len,
        edges_unfiltered,
        index,
        address,
    }))
}
