//! Locks of the parts whose interleavings are tested (`tests/tests/interleavings.rs` compiles them
//! with locks under a scheduler of its own).

pub(crate) use parking_lot::{Condvar, Mutex};
