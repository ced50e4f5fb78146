//! What `shale demo` writes and where.

pub(crate) mod beside;
pub(crate) mod netcdf;
pub(crate) mod noise;
pub(crate) mod scratch;
pub(crate) mod weather;
