//! Data and holes.

use shale_store::Seek;

use crate::error::refused;
use crate::{Error, Fs, Handle};

/// What `lseek(2)` looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whence {
    /// `SEEK_DATA`.
    Data,
    /// `SEEK_HOLE`.
    Hole,
}

impl Fs {
    /// The next data or hole at or after an offset.
    ///
    /// # Errors
    /// `ENXIO` when there is none, or when the store fails.
    pub fn lseek(&self, handle: &Handle, offset: u64, whence: Whence) -> Result<u64, Error> {
        let what = match whence {
            Whence::Data => Seek::Data,
            Whence::Hole => Seek::Hole,
        };
        match self.store.seek(&handle.file, offset, what)? {
            Some(found) => Ok(found),
            None => refused(libc::ENXIO),
        }
    }
}
