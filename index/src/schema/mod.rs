//! Keys and records of the index.

pub mod keys;
mod records;
pub mod totals;

pub use keys::RecordId;
pub use records::*;
pub use totals::{Delta, Rollup};
