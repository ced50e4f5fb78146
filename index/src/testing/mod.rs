//! For tests: what every engine must do, and what tests under a scheduler need of the inside of
//! the index. Only with the feature `testing`.

pub mod conformance;
#[cfg(feature = "shuttle")]
mod group_sync;

#[cfg(feature = "shuttle")]
pub use group_sync::GroupSync;
