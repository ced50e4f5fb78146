//! The statistics of a mount, and their forms.

mod prometheus;
mod snapshot;
mod table;

pub(crate) use prometheus::{Bound as BoundMetrics, Server as MetricsServer};
pub use snapshot::*;
