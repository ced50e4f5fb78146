//! The runner, and the context that it gives to a test.

pub(crate) mod case;
pub(crate) mod failure;
pub(crate) mod settings;
pub(crate) mod suite;
pub(crate) mod sweep;
