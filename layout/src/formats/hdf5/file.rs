//! The superblock, and reads relative to it.

use crate::error::Error;
use crate::fields::Fields;
use crate::format::HDF5_SIGNATURE;
use crate::reader::BudgetedReader;

/// An open file: where addresses count from and how wide they are.
pub(crate) struct Hdf5File<'a, 'b> {
    pub(crate) reader: &'a mut BudgetedReader<'b>,
    base: u64,
    /// Bytes of an address.
    pub(crate) offsets: usize,
    /// Bytes of a length.
    pub(crate) lengths: usize,
    /// Whether the superblock says that a writer has the file open.
    pub(crate) marked_open: bool,
}

impl<'a, 'b> Hdf5File<'a, 'b> {
    /// Reads the superblock at `base`; returns the address of the root group as well.
    pub(crate) fn open(
        reader: &'a mut BudgetedReader<'b>,
        base: u64,
    ) -> Result<(Self, u64), Error> {
        let head = reader.read(base, 16)?;
        let mut fields = Fields::new("superblock", &head);
        fields.expect(HDF5_SIGNATURE)?;
        let version = fields.u8()?;
        let (offsets, lengths, flags) = match version {
            0 | 1 => {
                fields.skip(4)?;
                (fields.u8()?, fields.u8()?, 0)
            }
            2 | 3 => (fields.u8()?, fields.u8()?, fields.u8()?),
            _ => {
                return Err(Error::Unsupported {
                    what: "superblock version",
                    found: u64::from(version),
                });
            }
        };
        for width in [offsets, lengths] {
            if !matches!(width, 2 | 4 | 8) {
                return Err(Error::Malformed {
                    what: "width of addresses",
                    found: u64::from(width),
                });
            }
        }
        let mut file = Self {
            reader,
            base,
            offsets: usize::from(offsets),
            lengths: usize::from(lengths),
            marked_open: flags & 1 != 0,
        };
        // Behind fixed fields: base, extension or free space, end of file, and then either the
        // root's header or the driver block and the root's entry (name, header).
        let (start, before) = match version {
            0 => (24, 5),
            1 => (28, 5),
            _ => (12, 3),
        };
        let width = file.offsets as u64;
        let root = file.read(start + before * width, width)?;
        let root = Fields::new("superblock", &root).address(file.offsets)?;
        let root = root.ok_or(Error::Malformed {
            what: "address of the root group",
            found: u64::MAX,
        })?;
        Ok((file, root))
    }

    /// Reads a structure at an address.
    pub(crate) fn read(&mut self, address: u64, len: u64) -> Result<Vec<u8>, Error> {
        let offset = self.offset_of(address)?;
        self.reader.read(offset, len)
    }

    /// Where an address is in the file.
    pub(crate) fn offset_of(&self, address: u64) -> Result<u64, Error> {
        address.checked_add(self.base).ok_or(Error::Malformed {
            what: "address",
            found: address,
        })
    }
}
