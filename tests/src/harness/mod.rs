//! The runner, and what one test gets from it.

pub(crate) mod case;
pub(crate) mod failure;
pub(crate) mod settings;
pub(crate) mod suite;
pub(crate) mod sweep;
