//! Numbers for Prometheus, for users of this machine who may see them.
//!
//! ```text
//! address   where to listen; refuses what others could reach
//! socket    a listening socket that cleans up after itself
//! peer      whose socket is at the other end of a connection
//! server    threads: one that accepts, a few that answer
//! http      as much of HTTP/1.1 as a scraper needs
//! text      the exposition format, and the list of all metrics
//! ```

mod address;
mod http;
mod peer;
mod server;
mod socket;
mod text;

pub use address::Address;
pub(crate) use server::{Bound, Server};
