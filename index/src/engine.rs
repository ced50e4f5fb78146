//! Engines behind the key-value contract.

mod cache;
mod change;
mod checkpoint;
mod embedded;
mod files;
pub mod journal;
mod maintain;
mod mem;
mod memtable;
mod open;
mod options;
mod rebuild;
mod resolve;
mod shared;
mod snapshot;
mod sync;
mod tables;
mod view;

pub use change::{Change, Commit};
pub use embedded::{Embedded, Visitor};
pub use mem::MemKv;
#[doc(hidden)]
pub use options::Tuning;
pub use options::{Options, Recovery};
