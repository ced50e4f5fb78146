//! A file system for unit tests.

use std::path::Path;
use std::sync::Arc;

use shale_store::{Choice, Effort, Store, StoreOptions};

use crate::Fs;
use crate::policy::Defaults;

/// On a store in `dir`.
pub(crate) fn file_system(dir: &Path) -> Arc<Fs> {
    over(Store::open(dir, &options()).unwrap())
}

/// On a store in `dir` that is only read.
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
        device: Choice::default(),
        kernel_cache: true,
    }
}

fn over(store: Store) -> Arc<Fs> {
    let defaults = Defaults {
        chunk: 1 << 16,
        quiet: None,
    };
    Arc::new(Fs::new(store, defaults))
}
