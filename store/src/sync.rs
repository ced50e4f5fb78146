//! Locks, threads and channels of a store. Tests compile the crate with others in their place,
//! which a scheduler controls (`tests/interleaved`).
//!
//! The catalogue has its own: the index calls it while it holds locks that no scheduler knows.

pub(crate) use crossbeam::channel;
pub(crate) use parking_lot::{Condvar, Mutex};
pub(crate) use shale_backing::{Priority, set_priority};
pub(crate) use std::sync::atomic;
pub(crate) use std::thread;
