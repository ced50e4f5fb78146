//! Room for data that the kernel's write-back cache accepts.
//!
//! ```text
//! gate         makes the kernel ask before it accepts a write, while room is short
//! call         how much the thread that asks is about to write
//! dirty_limit  how much the kernel may hold dirty
//! ```

mod call;
mod dirty_limit;
mod gate;

pub(super) use dirty_limit::bound as dirty_bound;
pub(super) use gate::{Question, WriteGate};
