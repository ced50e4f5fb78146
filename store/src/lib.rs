//! Chunk buffers, packs, and the threads between them.
//!
//! ```text
//! write --> chunks in memory --> workers: frames --> packs --> committer: sync, index commit
//! read  --> chunks in memory --> decoded frames  --> packs
//! ```
//! Data before references: a frame is in a pack and the pack is synced before the index refers to
//! it. Bytes stay in memory until the index has acknowledged them.

mod catalog;
mod disk;
mod error;
pub mod estimate;
mod file;
mod frame;
pub mod fsck;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod gc;
mod inspect;
mod map;
mod memory;
mod offline;
mod pack;
mod primitives;
mod read;
mod session;
mod settle;
mod stats;
mod store;
#[cfg(feature = "shuttle")]
pub mod testing;
#[cfg(test)]
mod tests;
mod volume;
mod write;

pub use disk::{Format, LOCK_FILE, Presence, SUPERBLOCK_FILE, Superblock, check_superblock};
pub use error::Error;
pub use file::{CurrentInode, Damage, Element, Failure, File, HintSpan, LayoutHints, Usage};
pub use gc::GcState;
pub use inspect::FieldShare;
pub use offline::{Contents, OfflineStore};
pub use read::Seek;
pub use settle::{Block, Region, SettleBatch, SettleOptions, Settled, codec_tag};
pub use shale_backing::{Device, DeviceOptions, StoreLocation, StripeCount, Striping};
pub use shale_codec::{ByteOrder, Effort, ElementKind};
pub use stats::{Counter, Counters, Encoded, Gauges};
pub use store::{Store, StoreOptions};
pub use volume::reserve;
pub use write::Asked;
