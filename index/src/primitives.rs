//! Locks, threads and atomics of the parts whose interleavings are tested: the real ones, or with
//! the feature `shuttle` those under a scheduler.

#[cfg(not(feature = "shuttle"))]
pub(crate) use {
    parking_lot::{Condvar, Mutex, MutexGuard},
    std::{sync::atomic, thread},
};

#[cfg(feature = "shuttle")]
pub(crate) use shale_backing::primitives::{Condvar, Mutex, MutexGuard, atomic, thread};
