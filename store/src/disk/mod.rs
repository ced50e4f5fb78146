//! The directory that a store is in: which store it is, who uses it, and how much room it has.

pub mod lock;
mod presence;
mod reserve;
mod space;
pub mod superblock;

pub use presence::Presence;
pub(crate) use presence::PresenceMonitor;
pub(crate) use reserve::{FILE as RESERVE_FILE, Reserve};
pub(crate) use space::{SpaceGuard, margin};

/// Where the index of a store is.
pub(crate) const INDEX_DIR: &str = "index";
