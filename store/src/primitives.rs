//! Locks, threads and channels of the store: the real ones, or with the feature `shuttle` those
//! under a scheduler.
//!
//! The catalog has its own: the index calls it while it holds locks that no scheduler controls.

#[cfg(not(feature = "shuttle"))]
pub(crate) use {
    crossbeam::channel,
    parking_lot::{Condvar, Mutex, MutexGuard},
    shale_backing::{Priority, set_priority},
    std::{sync::atomic, thread},
};

#[cfg(feature = "shuttle")]
pub(crate) use shale_backing::primitives::{
    Condvar, Mutex, MutexGuard, Priority, atomic, channel, set_priority, thread,
};
