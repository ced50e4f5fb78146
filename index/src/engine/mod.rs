//! Engines behind the key-value contract.

pub(crate) mod embedded;
#[cfg(feature = "etcd")]
pub mod etcd;
mod home;
mod reference;
pub mod replicated;
mod watches;

#[doc(hidden)]
pub use embedded::Tuning;
pub use embedded::{Embedded, Options, Recent, Recovery};
pub use home::{EmbeddedHome, IndexHome};
pub use reference::ReferenceKv;
