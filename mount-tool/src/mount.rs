//! The life of a mount, from the checks before it to the end of its daemon.

pub(crate) mod daemon;
mod handshake;
pub(crate) mod holder;
mod logging;
mod new_files;
mod notify;
pub(crate) mod preflight;
pub(crate) mod utab;
