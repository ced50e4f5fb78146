//! ShaleFS under test: mounted, installed, or in this process.

pub(crate) mod attributes;
pub(crate) mod helpers;
pub(crate) mod in_process;
pub(crate) mod mount;
