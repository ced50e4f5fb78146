//! Starts write-out ahead of a sync.

use std::fs::File;
use std::os::fd::AsRawFd;

/// Starts writing a range of a file to its device and does not wait. The sync that must follow
/// reports errors, so none are reported here.
#[allow(unsafe_code)]
pub(crate) fn begin(file: &File, offset: u64, len: u64) {
    let (Ok(offset), Ok(len)) = (offset.try_into(), len.try_into()) else {
        return;
    };
    // SAFETY: takes numbers only, and the descriptor is open as long as `file` is.
    let _ = unsafe {
        libc::sync_file_range(file.as_raw_fd(), offset, len, libc::SYNC_FILE_RANGE_WRITE)
    };
}
