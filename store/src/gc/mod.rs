//! Garbage collection: purges orphans, deletes dead packs, and rewrites packs that are mostly dead.

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
pub(crate) use worker::{Collector, GcControl};

/// A pack is rewritten when less than this many percent of it is alive.
const LIVE_PERCENT: u64 = 50;
