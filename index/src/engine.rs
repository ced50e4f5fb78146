//! Engines behind the key-value contract.

mod mem;

pub use mem::MemKv;
