//! What tests write, and how they recognise it again.

pub(crate) mod rng;
pub(crate) mod tree;
pub mod versions;
pub(crate) mod writer;
