//! Shared mappings of files.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ptr::null_mut;

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};

/// Copies bytes into a file through a mapping, and what the mapping shows of it out again.
pub(crate) fn write(file: &File, size: usize, at: usize, bytes: &[u8]) -> io::Result<Vec<u8>> {
    assert!(at + bytes.len() <= size);
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at a place of the kernel's choice; nothing else knows it.
    let view = unsafe { mmap(null_mut(), size, access, MapFlags::SHARED, file, 0) }?;
    // SAFETY: the file has `size` bytes and is changed by this thread alone meanwhile, so all of
    // the mapping can be accessed. The slice ends before the mapping does.
    let shown = unsafe {
        let view = std::slice::from_raw_parts_mut(view.cast::<u8>(), size);
        view[at..at + bytes.len()].copy_from_slice(bytes);
        view.to_vec()
    };
    // SAFETY: the mapping made above, to which nothing refers any more.
    unsafe {
        msync(view, size, MsyncFlags::SYNC)?;
        munmap(view, size)?;
    }
    Ok(shown)
}
