//! What a mount would make of a file that it does not have yet.

use std::sync::Arc;

use shale_layout::{Layout, ReadAt, Variable};
use shale_store::{Advice, Region};

/// How the file would be cut while it is written, as far as it would be understood by then.
pub fn advice(source: &(impl ReadAt + ?Sized)) -> Option<Arc<dyn Advice>> {
    crate::understanding::advice(source)
}

/// What is worth being stored as tiles when the file settles.
#[must_use]
pub fn regions(layout: &Layout) -> Vec<Region> {
    crate::regions::of(layout)
}

/// The same for `len` bytes of plain chunks of a variable that follow each other, alone.
#[must_use]
pub fn chunks(variable: &Variable, len: u64, chunk_len: u64) -> Option<Region> {
    crate::regions::chunks(0, len, chunk_len, variable)
}
