//! Seeking data and holes.

use shale_store::Seek;

use crate::{Error, Fs, Handle};

impl Fs {
    /// The next data or hole at or after an offset.
    ///
    /// # Errors
    /// `ENXIO` when there is none, or when the store fails.
    pub fn lseek(&self, handle: &Handle, offset: u64, seek: Seek) -> Result<u64, Error> {
        match self.store.seek(&handle.file, offset, seek)? {
            Some(found) => Ok(found),
            None => Err(Error::NothingBehind),
        }
    }
}
