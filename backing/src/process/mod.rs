//! The process itself: priorities of its threads, and its memory.

pub(crate) mod malloc;
pub(crate) mod priority;
