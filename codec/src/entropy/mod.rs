//! Coders: turn a stream of bytes or residuals into fewer bytes, and back.

pub(crate) mod classes;
mod contexts;
mod kernels;
mod rans;
pub(crate) mod residual;
mod rows;
pub(crate) mod sparse;
pub(crate) mod stream;
