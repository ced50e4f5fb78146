//! Fixed arrays: the chunk index of datasets that cannot grow.

use super::chunk_sink::{ChunkSink, Entries, unravel};
use super::file::Hdf5File;
use crate::error::Error;
use crate::fields::Fields;

pub(crate) fn read(
    file: &mut Hdf5File<'_, '_>,
    sink: &mut ChunkSink<'_>,
    address: u64,
) -> Result<(), Error> {
    let (offsets, lengths) = (file.offsets as u64, file.lengths as u64);
    let head = file.read(address, 8 + lengths + offsets)?;
    let mut fields = Fields::new("fixed array header", &head);
    fields.expect(b"FAHD")?;
    fields.skip(1)?;
    let filtered = fields.u8()? == 1;
    let width = fields.u8()?;
    let page_bits = u32::from(fields.u8()?);
    let count = fields.uint(file.lengths)?;
    let Some(block) = fields.address(file.offsets)? else {
        return Ok(());
    };
    let counts: Option<Vec<u64>> = sink.counts(true).into_iter().collect();
    let Some(counts) = counts else {
        return Err(Error::Malformed {
            what: "fixed array of a dataset without limits",
            found: address,
        });
    };
    let place = |number| unravel(number, &counts);
    let signature = file.read(block, 4)?;
    Fields::new("fixed array block", &signature).expect(b"FADB")?;
    // Signature, version, client, address of the header.
    let start = block.saturating_add(6 + offsets);
    let mut entries = Entries {
        address: start,
        count,
        width,
        filtered,
        first: 0,
    };
    let page = 1u64.checked_shl(page_bits).unwrap_or(u64::MAX);
    if count <= page {
        return sink.entries(file, entries, &place);
    }
    // Pages, and before them a bit for each that says whether it was written.
    let pages = count.div_ceil(page);
    let bitmap = file.read(start, pages.div_ceil(8))?;
    let page_len = page
        .checked_mul(u64::from(width))
        .and_then(|len| len.checked_add(4));
    let mut at = start.checked_add(bitmap.len() as u64 + 4);
    for number in 0..pages {
        let byte = bitmap.get((number / 8) as usize).copied().unwrap_or(0);
        let written = byte & (0x80 >> (number % 8)) != 0;
        if let Some(at) = at.filter(|_| written) {
            entries.address = at;
            entries.first = number * page;
            entries.count = page.min(count - entries.first);
            sink.entries(file, entries, &place)?;
        } else if number % 1024 == 0 {
            file.reader.tick()?;
        }
        at = at.zip(page_len).and_then(|(at, len)| at.checked_add(len));
    }
    Ok(())
}
