//! Transforms: turn numbers into small residuals and elements into byte columns, and back.

pub(crate) mod decimal;
pub(crate) mod exceptions;
pub(crate) mod float;
pub(crate) mod kernels;
pub(crate) mod lanes;
pub(crate) mod numeric;
pub(crate) mod predict;
pub(crate) mod runs;
mod scan;
pub(crate) mod shuffle;
pub(crate) mod word;
