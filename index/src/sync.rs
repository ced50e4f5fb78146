//! Locks of the parts whose interleavings are tested.

pub(crate) use parking_lot::{Condvar, Mutex};
