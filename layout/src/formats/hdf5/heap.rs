//! Heaps: where groups keep names and links.

use super::file::Hdf5File;
use crate::error::Error;
use crate::fields::Fields;

const MAX_NAME: u64 = 1024;
const MAX_DEPTH: usize = 16;
/// Rows of a doubling table; each doubles the size of its blocks.
const MAX_ROWS: u32 = 64;

/// A local heap: the names of an old group.
pub(crate) struct LocalHeap {
    data: u64,
    len: u64,
}

impl LocalHeap {
    pub(crate) fn open(file: &mut Hdf5File<'_, '_>, address: u64) -> Result<Self, Error> {
        let len = 8 + 2 * file.lengths + file.offsets;
        let head = file.read(address, len as u64)?;
        let mut fields = Fields::new("local heap", &head);
        fields.expect(b"HEAP")?;
        fields.skip(4)?;
        let len = fields.uint(file.lengths)?;
        fields.skip(file.lengths)?;
        let data = fields.uint(file.offsets)?;
        Ok(Self { data, len })
    }

    /// The name that begins at `offset`.
    pub(crate) fn name(&self, file: &mut Hdf5File<'_, '_>, offset: u64) -> Result<String, Error> {
        let room = self.len.saturating_sub(offset).min(MAX_NAME);
        let bytes = file.read(self.data.saturating_add(offset), room)?;
        let end = bytes.iter().position(|&byte| byte == 0);
        let name = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
        Ok(String::from_utf8_lossy(name).into_owned())
    }
}

/// A fractal heap: the links of a large group. Blocks double in size from row to row of a
/// table; small rows hold data, large ones further tables.
pub(crate) struct FractalHeap {
    table_width: u64,
    start_len: u64,
    max_direct_len: u64,
    offset_width: usize,
    length_width: usize,
    root: Option<u64>,
    root_rows: u32,
}

impl FractalHeap {
    pub(crate) fn open(file: &mut Hdf5File<'_, '_>, address: u64) -> Result<Self, Error> {
        let (offsets, lengths) = (file.offsets, file.lengths);
        let len = 22 + 3 * offsets + 12 * lengths;
        let head = file.read(address, len as u64)?;
        let mut fields = Fields::new("fractal heap", &head);
        fields.expect(b"FRHP")?;
        fields.skip(1 + 2)?;
        let filters = fields.u16()?;
        fields.skip(1)?;
        let max_object = u64::from(fields.u32()?);
        fields.skip(lengths + offsets + lengths + offsets + 8 * lengths)?;
        let table_width = u64::from(fields.u16()?);
        let start_len = fields.uint(lengths)?;
        let max_direct_len = fields.uint(lengths)?;
        let bits = fields.u16()?;
        fields.skip(2)?;
        let root = fields.address(offsets)?;
        let root_rows = u32::from(fields.u16()?);
        if filters != 0 {
            return Err(Error::Unsupported {
                what: "fractal heap with filters of length",
                found: u64::from(filters),
            });
        }
        let sane = table_width > 0
            && start_len.is_power_of_two()
            && max_direct_len.is_power_of_two()
            && max_direct_len >= start_len
            && bits <= 64
            && root_rows <= MAX_ROWS;
        if !sane {
            return Err(Error::Malformed {
                what: "fractal heap",
                found: table_width,
            });
        }
        Ok(Self {
            table_width,
            start_len,
            max_direct_len,
            offset_width: usize::from(bits).div_ceil(8),
            length_width: (max_direct_len.ilog2().div_ceil(8))
                .min(max_object.max(1).ilog2() / 8 + 1) as usize,
            root,
            root_rows,
        })
    }

    /// The bytes of the object that `id` names, if they are stored in a block.
    pub(crate) fn object(
        &self,
        file: &mut Hdf5File<'_, '_>,
        id: &[u8],
    ) -> Result<Option<Vec<u8>>, Error> {
        let mut fields = Fields::new("heap ID", id);
        let Some(root) = self.root else {
            return Ok(None);
        };
        if fields.u8()? != 0 {
            // Huge and tiny objects: links with usual names are neither.
            return Ok(None);
        }
        let offset = fields.uint(self.offset_width)?;
        let len = fields.uint(self.length_width)?;
        let address = match self.root_rows {
            0 => root.checked_add(offset),
            rows => self.find(file, root, rows, offset)?,
        };
        match address {
            Some(address) => file.read(address, len).map(Some),
            None => Ok(None),
        }
    }

    /// Bytes of a block in this row.
    fn row_len(&self, row: u32) -> Option<u64> {
        self.start_len.checked_shl(row.saturating_sub(1))
    }

    /// The address of heap offset `offset` below the table at `table`.
    fn find(
        &self,
        file: &mut Hdf5File<'_, '_>,
        mut table: u64,
        mut rows: u32,
        mut offset: u64,
    ) -> Result<Option<u64>, Error> {
        for _ in 0..MAX_DEPTH {
            let Some((row, column, within, len)) = self.locate(rows, offset) else {
                return Ok(None);
            };
            let entry = u64::from(row) * self.table_width + column;
            // Signature, version, address of the heap, offset of the block; then addresses.
            let prefix = 5 + file.offsets + self.offset_width;
            let at = table
                .checked_add(prefix as u64)
                .and_then(|at| at.checked_add(entry.checked_mul(file.offsets as u64)?));
            let Some(at) = at else { return Ok(None) };
            let child = file.read(at, file.offsets as u64)?;
            let Some(child) = Fields::new("heap table", &child).address(file.offsets)? else {
                return Ok(None);
            };
            if len <= self.max_direct_len {
                return Ok(child.checked_add(within));
            }
            // A table that covers as much as a block of this row would.
            let covered = len.ilog2();
            let first_row = (self.start_len.saturating_mul(self.table_width))
                .max(1)
                .ilog2();
            rows = covered.saturating_sub(first_row) + 1;
            table = child;
            offset = within;
        }
        Ok(None)
    }

    /// Row, column, offset in the block, and length of the block that holds `offset`.
    fn locate(&self, rows: u32, offset: u64) -> Option<(u32, u64, u64, u64)> {
        let mut start = 0u64;
        for row in 0..rows.min(MAX_ROWS) {
            let len = self.row_len(row)?;
            let span = len.checked_mul(self.table_width)?;
            if offset - start < span {
                let within = offset - start;
                return Some((row, within / len, within % len, len));
            }
            start = start.checked_add(span)?;
        }
        None
    }
}
