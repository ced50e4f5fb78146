//! Allocation and holes.

use shale_index::extent::MAX_FILE_SIZE;

use crate::durability::Change;
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
            return Err(Error::Invalid("length"));
        }
        let Some(end) = offset.checked_add(len).filter(|&end| end <= MAX_FILE_SIZE) else {
            return Err(Error::TooLarge);
        };
        self.follow_policy(handle)?;
        match mode {
            PUNCH | ZERO_KEEP | ZERO => self.store.punch(&handle.file, offset..end)?,
            0 | libc::FALLOC_FL_KEEP_SIZE => {
                if len > self.store.space()?.available {
                    return Err(Error::NoSpace);
                }
            }
            _ => return Err(Error::NotSupported),
        }
        if matches!(mode, 0 | ZERO) && end > handle.file.size() {
            self.store.truncate(&handle.file, end)?;
        }
        self.finish_and_wait(handle, Change::Contents { sync: false })
    }
}
