//! Stores that are used as a library, without a mount.

use shale_index::NewNode;
use shale_index::schema::S_IFREG;
use shale_store::{DeviceOptions, Effort, StoreOptions};

/// How a small store is opened.
pub fn store_options(memory: u64) -> StoreOptions {
    StoreOptions {
        memory,
        workers: 2,
        owner: (0, 0),
        effort: Effort::Fast,
        purpose: "test".to_owned(),
        device: DeviceOptions::default(),
        kernel_cache: true,
    }
}

/// An empty regular file with chunks of 4 KiB.
pub fn small_chunks() -> NewNode {
    NewNode {
        mode: S_IFREG | 0o600,
        uid: 0,
        gid: 0,
        rdev: 0,
        target: Vec::new(),
        chunk_shift: 12,
        xattrs: Vec::new(),
    }
}
