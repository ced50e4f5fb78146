//! Durability on demand.

use crate::{Error, Fs, Handle};

impl Fs {
    /// Returns when the file's data, size, times and names are durable.
    ///
    /// # Errors
    /// What prevented it, or a failure of writing behind that this handle has not reported yet.
    pub fn fsync(&self, handle: &Handle) -> Result<(), Error> {
        let synced = self.store.sync(&handle.file);
        let reported = handle.report();
        synced?;
        reported
    }

    /// Returns when the names in a directory are durable.
    ///
    /// # Errors
    /// What prevented it.
    pub fn fsyncdir(&self) -> Result<(), Error> {
        Ok(self.store.sync_metadata()?)
    }
}
