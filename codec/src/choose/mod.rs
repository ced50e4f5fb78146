//! Chooses the transform and the coders of a chunk from a sample.

pub(crate) mod effort;
pub(crate) mod fate;
pub(crate) mod hint;
pub(crate) mod plan;
pub(crate) mod plan_cache;
pub(crate) mod sample;
