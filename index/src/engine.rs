//! Engines behind the key-value contract.

mod cache;
mod change;
pub(crate) mod checkpoint;
mod embedded;
pub(crate) mod files;
mod group;
mod import;
pub mod journal;
mod maintain;
mod mem;
mod memtable;
mod open;
mod options;
mod rebuild;
mod resolve;
mod shared;
pub(crate) mod snapshot;
mod sync;
mod tables;
pub(crate) mod view;

pub use change::{Change, Commit};
pub use embedded::{Embedded, Visitor};
pub use mem::MemKv;
#[doc(hidden)]
pub use options::Tuning;
pub use options::{Options, Recent, Recovery};
