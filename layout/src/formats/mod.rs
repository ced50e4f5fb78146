//! One parser per file format.

pub(crate) mod classic;
pub(crate) mod fits;
pub(crate) mod hdf5;
pub(crate) mod npy;
