//! Space ahead of time, and holes.

use shale_store::index::extent::MAX_FILE_SIZE;

use crate::error::refused;
use crate::options::Synchronous;
use crate::{Error, Fs, Handle};

impl Fs {
    /// As fallocate(2): allocate, keep the size, punch a hole, zero a range. Compressed files
    /// cannot reserve space; a plain allocation only checks that there is enough now.
    ///
    /// # Errors
    /// `EOPNOTSUPP`, `EINVAL`, `EFBIG`, `ENOSPC`, or when the store fails.
    pub fn fallocate(
        &self,
        handle: &Handle,
        offset: u64,
        len: u64,
        mode: i32,
    ) -> Result<(), Error> {
        const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE;
        const ZERO_KEEP: i32 = ZERO | libc::FALLOC_FL_KEEP_SIZE;
        self.store.check_writable()?;
        if len == 0 {
            return refused(libc::EINVAL);
        }
        let Some(end) = offset.checked_add(len).filter(|&end| end <= MAX_FILE_SIZE) else {
            return refused(libc::EFBIG);
        };
        match mode {
            PUNCH | ZERO_KEEP | ZERO => self.store.punch(&handle.file, offset, len)?,
            0 | libc::FALLOC_FL_KEEP_SIZE => {
                if len > self.store.space()?.available {
                    return refused(libc::ENOSPC);
                }
            }
            _ => return refused(libc::EOPNOTSUPP),
        }
        if matches!(mode, 0 | ZERO) && end > handle.file.size() {
            self.store.truncate(&handle.file, end)?;
        }
        if self.is_synchronous(Synchronous::Everything) {
            self.store.sync(&handle.file)?;
        }
        Ok(())
    }
}
