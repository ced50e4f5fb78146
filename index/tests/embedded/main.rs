//! The embedded engine against its reference, its disk, and its own death.

// Helpers of tests are tests.
#![allow(clippy::unwrap_used)]

mod crash;
mod damage;
mod faults;
mod model;
mod support;
