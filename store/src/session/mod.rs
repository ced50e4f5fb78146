//! Sessions: one running daemon that has a store mounted.

pub(crate) mod previous;
