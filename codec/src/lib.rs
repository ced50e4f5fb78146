//! Bytes to frames and back: pure functions, no I/O, no threads.

mod frame;

pub use frame::*;
