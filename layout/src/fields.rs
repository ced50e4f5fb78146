//! Little-endian fields of a structure in memory.

use crate::error::Error;

/// Reads a structure field by field, never past its end.
pub(crate) struct Fields<'a> {
    what: &'static str,
    all: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self {
            what,
            all: bytes,
            rest: bytes,
        }
    }

    /// The next `len` bytes.
    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], Error> {
        let (now, later) = self.rest.split_at_checked(len).ok_or(Error::Short {
            what: self.what,
            len: self.all.len() as u64,
        })?;
        self.rest = later;
        Ok(now)
    }

    /// Skips `len` bytes.
    pub(crate) fn skip(&mut self, len: usize) -> Result<(), Error> {
        self.take(len).map(drop)
    }

    /// The remaining bytes.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// An unsigned integer of up to eight bytes.
    pub(crate) fn uint(&mut self, width: usize) -> Result<u64, Error> {
        if width > 8 {
            return Err(Error::Malformed {
                what: "width of an integer",
                found: width as u64,
            });
        }
        Ok(self
            .take(width)?
            .iter()
            .rev()
            .fold(0, |sum, &byte| sum << 8 | u64::from(byte)))
    }

    /// An address of this width, unless it is the undefined one.
    pub(crate) fn address(&mut self, width: usize) -> Result<Option<u64>, Error> {
        let undefined = u64::MAX >> (64 - 8 * width.clamp(1, 8));
        Ok(Some(self.uint(width)?).filter(|&address| address != undefined))
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Error> {
        Ok(self.uint(1)? as u8)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Error> {
        Ok(self.uint(2)? as u16)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Error> {
        Ok(self.uint(4)? as u32)
    }

    /// Fails unless the next bytes are these.
    pub(crate) fn expect(&mut self, signature: &[u8]) -> Result<(), Error> {
        let found = self.take(signature.len())?;
        if found != signature {
            return Err(Error::Malformed {
                what: self.what,
                found: found
                    .iter()
                    .fold(0, |sum, &byte| sum << 8 | u64::from(byte)),
            });
        }
        Ok(())
    }
}
