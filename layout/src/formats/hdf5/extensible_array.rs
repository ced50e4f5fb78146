//! Extensible arrays: the chunk index of datasets that grow along one dimension.
//!
//! ```text
//! header --> index block: entries | data blocks | super blocks --> data blocks
//! ```
//! Super block `n` stands for 2^(n/2) data blocks of 2^((n+1)/2) times the smallest length;
//! the data blocks of the first few are listed in the index block itself.

use super::chunk_sink::{ChunkSink, Entries, unravel};
use super::file::Hdf5File;
use crate::error::Error;
use crate::fields::Fields;

struct Array {
    filtered: bool,
    width: u8,
    /// Bytes of the offset that blocks carry.
    offset_width: u64,
    min_entries: u64,
    /// Entries of a page; data blocks that are longer consist of pages.
    page: u64,
    /// Which dimension grows.
    growing: usize,
    /// Chunks along each dimension, the growing one first.
    counts: Vec<u64>,
}

/// Equal data blocks that a super block stands for.
struct SuperBlock {
    blocks: u64,
    /// Entries of each.
    len: u64,
}

struct DataBlock {
    address: u64,
    /// Its entries.
    len: u64,
    /// Number of its first entry in the array.
    first: u64,
}

pub(crate) fn read(
    file: &mut Hdf5File<'_, '_>,
    sink: &mut ChunkSink<'_>,
    address: u64,
) -> Result<(), Error> {
    let (offsets, lengths) = (file.offsets as u64, file.lengths as u64);
    let head = file.read(address, 12 + 6 * lengths + offsets)?;
    let mut fields = Fields::new("extensible array header", &head);
    fields.expect(b"EAHD")?;
    fields.skip(1)?;
    let filtered = fields.u8()? == 1;
    let width = fields.u8()?;
    let max_bits = u32::from(fields.u8()?);
    let in_index = u64::from(fields.u8()?);
    let min_entries = u64::from(fields.u8()?);
    let min_pointers = u64::from(fields.u8()?);
    let page_bits = u32::from(fields.u8()?);
    fields.skip(6 * file.lengths)?;
    let Some(index) = fields.address(file.offsets)? else {
        return Ok(());
    };
    let sane = max_bits <= 64
        && min_entries.is_power_of_two()
        && min_pointers.is_power_of_two()
        && min_entries.ilog2() <= max_bits;
    let growing = sink.space.limits.iter().position(Option::is_none);
    let (true, Some(growing)) = (sane, growing) else {
        return Err(Error::Malformed {
            what: "extensible array header",
            found: address,
        });
    };
    let mut counts = sink.counts(true);
    if growing < counts.len() {
        counts.remove(growing);
    }
    counts.insert(0, Some(0));
    let Some(counts) = counts.into_iter().collect::<Option<Vec<_>>>() else {
        return Err(Error::Malformed {
            what: "extensible array of a dataset without limits",
            found: address,
        });
    };
    let array = Array {
        filtered,
        width,
        offset_width: u64::from(max_bits.div_ceil(8)),
        min_entries,
        page: 1u64.checked_shl(page_bits).unwrap_or(u64::MAX),
        growing,
        counts,
    };

    // Signature, version, client, address of the header.
    let prefix = 6 + offsets;
    let signature = file.read(index, 4)?;
    Fields::new("extensible array index", &signature).expect(b"EAIB")?;
    let start = index.saturating_add(prefix);
    array.entries(file, sink, start, in_index, 0)?;
    let super_blocks = u64::from(1 + max_bits - min_entries.ilog2());
    let listed = u64::from(2 * min_pointers.ilog2()).min(super_blocks);
    let blocks = 2 * (min_pointers - 1);
    let pointers = (blocks + super_blocks - listed) * offsets;
    let pointers = file.read(start.saturating_add(in_index * u64::from(width)), pointers)?;
    let mut pointers = Fields::new("extensible array index", &pointers);
    let mut first = in_index;
    for number in 0..super_blocks {
        let Some(SuperBlock { blocks, len }) = array.super_block(number) else {
            break;
        };
        if number < listed {
            for _ in 0..blocks {
                if let Some(address) = pointers.address(file.offsets)? {
                    let block = DataBlock {
                        address,
                        len,
                        first,
                    };
                    array.block(file, sink, &block, &|_| true)?;
                }
                first = first.saturating_add(len);
            }
        } else {
            if let Some(address) = pointers.address(file.offsets)? {
                let all = SuperBlock { blocks, len };
                array.pointers(file, sink, address, &all, first)?;
            }
            first = first.saturating_add(blocks.saturating_mul(len));
        }
    }
    Ok(())
}

impl Array {
    fn super_block(&self, number: u64) -> Option<SuperBlock> {
        let entries = 1u64.checked_shl(number.div_ceil(2) as u32)?;
        Some(SuperBlock {
            blocks: 1u64.checked_shl((number / 2) as u32)?,
            len: entries.checked_mul(self.min_entries)?,
        })
    }

    fn entries(
        &self,
        file: &mut Hdf5File<'_, '_>,
        sink: &mut ChunkSink<'_>,
        address: u64,
        count: u64,
        first: u64,
    ) -> Result<(), Error> {
        let entries = Entries {
            address,
            count,
            width: self.width,
            filtered: self.filtered,
            first,
        };
        sink.entries(file, entries, &|number| {
            let mut grid = unravel(number, &self.counts)?;
            let along = grid.remove(0);
            grid.insert(self.growing, along);
            Some(grid)
        })
    }

    /// Follows the pointers of a super block.
    fn pointers(
        &self,
        file: &mut Hdf5File<'_, '_>,
        sink: &mut ChunkSink<'_>,
        address: u64,
        &SuperBlock { blocks, len }: &SuperBlock,
        first: u64,
    ) -> Result<(), Error> {
        let offsets = file.offsets as u64;
        let signature = file.read(address, 4)?;
        Fields::new("extensible array super block", &signature).expect(b"EASB")?;
        let start = address.saturating_add(6 + offsets + self.offset_width);
        // If blocks have pages, a bit for each says whether it was written. There is room for
        // whole bytes per block, but the bits of a block follow those of the one before.
        let pages = if len > self.page { len / self.page } else { 0 };
        let bitmap_len = pages.div_ceil(8);
        let bitmaps = blocks.saturating_mul(bitmap_len);
        let bitmap = file.read(start, bitmaps)?;
        let at = start.saturating_add(bitmaps);
        let pointers = file.read(at, blocks.saturating_mul(offsets))?;
        let mut pointers = Fields::new("extensible array super block", &pointers);
        for number in 0..blocks {
            if let Some(address) = pointers.address(file.offsets)? {
                let block = DataBlock {
                    address,
                    len,
                    first: first.saturating_add(number.saturating_mul(len)),
                };
                let written = |page: u64| {
                    let bit = number * pages + page;
                    let byte = bitmap.get((bit / 8) as usize).copied().unwrap_or(0u8);
                    byte & (0x80u8 >> (bit % 8)) != 0
                };
                self.block(file, sink, &block, &written)?;
            }
        }
        Ok(())
    }

    /// A data block; `written` tells for each of its pages, if it has any, whether it was.
    fn block(
        &self,
        file: &mut Hdf5File<'_, '_>,
        sink: &mut ChunkSink<'_>,
        &DataBlock {
            address,
            len,
            first,
        }: &DataBlock,
        written: &dyn Fn(u64) -> bool,
    ) -> Result<(), Error> {
        let signature = file.read(address, 4)?;
        Fields::new("extensible array block", &signature).expect(b"EADB")?;
        let prefix = 6 + file.offsets as u64 + self.offset_width;
        let start = address.saturating_add(prefix);
        if len <= self.page {
            return self.entries(file, sink, start, len, first);
        }
        // A checksum ends the prefix and each page.
        let page_len = self
            .page
            .saturating_mul(u64::from(self.width))
            .saturating_add(4);
        for number in 0..len / self.page {
            if written(number) {
                let at = start
                    .saturating_add(4)
                    .saturating_add(number.saturating_mul(page_len));
                let first = first.saturating_add(number * self.page);
                self.entries(file, sink, at, self.page, first)?;
            }
        }
        Ok(())
    }
}
