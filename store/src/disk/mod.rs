//! The directory that a store is in: which store it is, who uses it, and how much room it has.

mod lock;
mod presence;
mod reserve;
mod space;
mod superblock;

pub use lock::FILE as LOCK_FILE;
pub(crate) use lock::{SharedLock, StoreLock};
pub use presence::Presence;
pub(crate) use presence::PresenceMonitor;
pub(crate) use reserve::{FILE as RESERVE_FILE, Reserve};
pub(crate) use space::{SpaceGuard, margin};
pub use superblock::{FILE as SUPERBLOCK_FILE, Format, Superblock, check as check_superblock};

/// Where the index of a store is.
pub(crate) const INDEX_DIR: &str = "index";
