//! Keys and records of the index.

pub mod keys;
mod records;

pub use records::*;
