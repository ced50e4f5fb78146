//! A file system for unit tests.

use std::path::Path;
use std::sync::Arc;

use shale_store::{DeviceOptions, Effort, Store, StoreOptions};

use crate::Fs;
use crate::policy::MountDefaults;

/// On a store in `dir`.
pub(crate) fn file_system(dir: &Path) -> Arc<Fs> {
    over(Store::open(dir, &options()).unwrap())
}

/// On a store in `dir`, opened read-only.
pub(crate) fn read_only_file_system(dir: &Path) -> Arc<Fs> {
    over(Store::open_read_only(dir, &options()).unwrap())
}

fn options() -> StoreOptions {
    StoreOptions {
        memory: 16 << 20,
        workers: 1,
        owner: (0, 0),
        effort: Effort::Fast,
        purpose: "test".to_owned(),
        device: DeviceOptions::default(),
        kernel_cache: true,
    }
}

fn over(store: Store) -> Arc<Fs> {
    let defaults = MountDefaults {
        chunk: 1 << 16,
        quiet: None,
    };
    Arc::new(Fs::new(store, defaults))
}

/// A square array of floats in NumPy's format.
pub(crate) fn array(side: usize) -> Vec<u8> {
    let mut header =
        format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({side}, {side}), }}")
            .into_bytes();
    header.resize(117, b' ');
    header.push(b'\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header);
    bytes.extend(vec![0; side * side * 4]);
    bytes
}
