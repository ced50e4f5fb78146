//! Faults on command. Product code calls [`failpoint`]; the rest is compiled for tests only.

pub mod failpoint;
#[cfg(any(test, feature = "faults"))]
pub mod faults;
#[cfg(any(test, feature = "faults"))]
pub mod mutate;
#[cfg(feature = "shuttle")]
pub mod primitives;
#[cfg(any(test, feature = "faults"))]
pub mod static_files;
