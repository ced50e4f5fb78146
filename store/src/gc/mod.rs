//! Garbage collection: purges orphans, deletes dead packs, and rewrites packs that are mostly
//! garbage.

mod idle;
mod orphans;
mod rewrite;
mod select;
mod worker;

pub(crate) use idle::IdleWorker;
pub(crate) use orphans::StoreUpkeep;
#[cfg(test)]
pub(crate) use rewrite::Rewriter;
pub use worker::GcState;
pub(crate) use worker::{GcControl, GcWorker};

/// A pack is rewritten when less than this percentage of it is live.
const LIVE_PERCENT: u64 = 50;
