//! Memory for unwritten data: its limit, and reusable buffers.

mod limiter;
mod pool;

pub(crate) use limiter::WriteLimiter;
pub(crate) use pool::{BufferPool, fits, fits_loosely};
