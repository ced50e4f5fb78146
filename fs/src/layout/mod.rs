//! The meaning of the bytes of files, as far as the store needs it.
//!
//! ```text
//! hints    for the encoder, while a file is written
//! regions  worth being stored as tiles, when a file settles
//! source   a file of the store as the parsers read it
//! ```

mod hints;
mod regions;
mod source;

use std::sync::Arc;

use shale_layout::{Layout, ReadAt, Variable};
use shale_store::{LayoutHints, Region};

pub(crate) use hints::KnownLayouts;
pub(crate) use source::Source;

/// The hints that a mount would have for a file while it is written.
pub fn hints(source: &(impl ReadAt + ?Sized)) -> Option<Arc<dyn LayoutHints>> {
    hints::hints(source)
}

/// The regions that a mount would store as tiles when a file settles.
#[must_use]
pub fn regions(layout: &Layout) -> Vec<Region> {
    regions::of(layout)
}

/// The same for `len` bytes of adjacent plain chunks of a variable.
#[must_use]
pub fn chunks(variable: &Variable, len: u64, chunk_len: u64) -> Option<Region> {
    regions::chunks(0, len, chunk_len, variable)
}
