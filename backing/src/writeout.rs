//! Telling the device to begin with what will be synced later.

use std::fs::File;
use std::os::fd::AsRawFd;

/// Begins to write a range of a file to its device and does not wait. What goes wrong is told by
/// the sync that has to follow, so nothing is reported here.
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
