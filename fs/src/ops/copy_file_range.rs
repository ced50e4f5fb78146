//! Copies inside the file system, without a way through the application.

use crate::options::Synchronous;
use crate::{Error, Fs, Handle};

/// Bytes copied at a time.
const STEP: usize = 1 << 20;
/// Bytes copied by one call at most, so that a copy can be interrupted.
const CALL_MAX: u64 = 64 << 20;

impl Fs {
    /// Copies up to `len` bytes; returns how many, 0 at the end of the source.
    ///
    /// # Errors
    /// As reading and writing.
    pub fn copy_file_range(
        &self,
        from: &Handle,
        from_offset: u64,
        to: &Handle,
        to_offset: u64,
        len: u64,
    ) -> Result<u64, Error> {
        let len = len.min(CALL_MAX);
        let sync = self.follow_policy(to)? || self.is_synchronous(Synchronous::Everything);
        let mut buf = Vec::new();
        let mut done = 0;
        while done < len {
            let step = STEP.min((len - done) as usize);
            self.store
                .read(&from.file, from_offset + done, step, &mut buf)?;
            if buf.is_empty() {
                break;
            }
            match self.store.write(&to.file, to_offset + done, &buf) {
                Ok(()) => done += buf.len() as u64,
                Err(_) if done > 0 => break,
                Err(e) => return Err(e.into()),
            }
        }
        if sync && done > 0 {
            self.store.sync(&to.file)?;
        }
        Ok(done)
    }
}
