//! Chunk buffers, packs, and the pipelines between them.
//!
//! ```text
//! write --> chunks in memory --> workers: frames --> packs --> committer: sync, index commit
//! read  --> chunks in memory --> decoded frames  --> packs
//! ```
//! Data before meaning: a frame is in a pack and the pack is synced before the index refers to
//! it. Bytes stay in memory until the index has acknowledged them.

// The tests of this crate know of no scheduler.
#![cfg(not(all(test, feature = "interleaved")))]

#[cfg(feature = "interleaved")]
#[path = "../../tests/interleaved/src/access.rs"]
pub mod access;
mod activity;
mod admission;
mod advice;
mod ahead;
mod budget;
mod cache;
mod catalog;
mod collector;
mod commit;
mod counters;
mod damage;
mod error;
mod file;
mod files;
mod frames;
pub mod fsck;
mod idle;
mod janitor;
mod last_session;
pub mod lock;
mod lost;
mod map;
pub mod pack;
mod pending;
mod pins;
mod pipeline;
mod presence;
#[cfg(any(test, fuzzing))]
pub mod promises;
mod read;
mod reader;
mod reserve;
mod segs;
mod settle;
mod space;
mod spare;
mod store;
pub mod superblock;
mod survey;
#[cfg_attr(feature = "interleaved", path = "../../tests/interleaved/src/sync.rs")]
mod sync;
#[cfg(test)]
mod tests;
mod tiles;
pub mod trial;
mod worth;
mod write;

pub use activity::Busy;
pub use admission::Asked;
pub use advice::{Advice, Element, Segment};
pub use collector::Collecting;
pub use counters::{Counter, Counters, Encoded, Gauges};
pub use damage::Damage;
pub use error::Error;
pub use file::{Failure, File};
pub use files::Seen;
pub use pending::Taken;
pub use presence::Presence;
pub use read::Seek;
pub use reader::{Contents, Reader, Xattr};
pub use settle::{Block, Region, SettleBatch, SettleOptions, Settled, tried};
pub use shale_backing::{Choice, Device, Place, StripeCount, Striping};
pub use shale_codec::{ByteOrder, Effort, ElementKind, FrameSummary};
pub use shale_index as index;
pub use space::reserve;
pub use store::{Store, StoreOptions};
pub use survey::FieldShare;
