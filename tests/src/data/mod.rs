//! Test data, and how it is recognised again.

pub(crate) mod rng;
pub(crate) mod tree;
pub mod versions;
pub(crate) mod writer;
