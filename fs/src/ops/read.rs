//! Reading.

use crate::{Error, Fs, Handle};

impl Fs {
    /// Reads into `out`, which is replaced; fewer bytes than asked for only at the end.
    ///
    /// # Errors
    /// `EIO` when stored bytes are damaged, or when the device fails.
    pub fn read(
        &self,
        handle: &Handle,
        offset: u64,
        len: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        if let Err(e) = self.store.read(&handle.file, offset, len, out) {
            self.store.note_unreadable(handle.ino(), offset, &e);
            return Err(e.into());
        }
        self.counters.read.add(out.len() as u64);
        handle.file.note_read(out.len());
        Ok(())
    }
}
