//! What a mount counts, and how it shows it.

pub(crate) mod prometheus;
mod snapshot;
mod table;

pub use snapshot::*;
