//! Memory for data on its way: how much of it there may be, and buffers to use again.

mod limiter;
mod pool;

pub(crate) use limiter::WriteLimiter;
pub(crate) use pool::{BufferPool, fits, fits_loosely};
