//! A file of the store as the parsers read it.

use std::cell::RefCell;
use std::io;
use std::sync::Arc;

use shale_layout::ReadAt;
use shale_store::{File, Store};

/// A file of the store.
pub(crate) struct Source<'a> {
    store: &'a Store,
    file: &'a Arc<File>,
    /// What the store read last. A parser reads thousands of times; all reads share this memory.
    buffer: RefCell<Vec<u8>>,
}

impl<'a> Source<'a> {
    pub(crate) fn new(store: &'a Store, file: &'a Arc<File>) -> Self {
        Self {
            store,
            file,
            buffer: RefCell::default(),
        }
    }
}

impl ReadAt for Source<'_> {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let mut read = self.buffer.borrow_mut();
        self.store
            .read(self.file, offset, buf.len(), &mut read)
            .map_err(|e| io::Error::from_raw_os_error(crate::Error::from(e).errno()))?;
        buf[..read.len()].copy_from_slice(&read);
        Ok(read.len())
    }

    fn len(&self) -> u64 {
        self.file.size()
    }
}
