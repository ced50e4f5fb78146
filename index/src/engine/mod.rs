//! Engines behind the key-value contract.

pub(crate) mod embedded;
mod reference;

#[doc(hidden)]
pub use embedded::Tuning;
pub use embedded::{Embedded, Options, Recent, Recovery};
pub use reference::ReferenceKv;
