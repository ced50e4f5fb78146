//! Sessions: one running daemon that has a store mounted.

mod previous;

pub(crate) use previous::report as report_previous;
