//! What exists in a store: names, inodes, attributes, extents, over a small key-value trait.

pub mod engine;
mod error;
pub mod kv;

pub use error::Error;
pub use kv::Kv;
