//! What a mount counts, and how it shows it.

mod prometheus;
mod snapshot;
mod table;

pub(crate) use prometheus::{Bound as BoundMetrics, Server as MetricsServer};
pub use snapshot::*;
