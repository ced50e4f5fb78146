//! Locks of the parts whose interleavings are tested: the real ones, or with the feature `shuttle`
//! those that a scheduler controls.

#[cfg(not(feature = "shuttle"))]
pub(crate) use parking_lot::{Condvar, Mutex};

#[cfg(feature = "shuttle")]
pub(crate) use shale_backing::primitives::{Condvar, Mutex};
