//! Serves metrics to Prometheus, for the users of this machine who may see them.
//!
//! ```text
//! socket    a listening socket that removes itself
//! peer      the user at the other end of a connection
//! server    threads: one that accepts, a few that answer
//! http      as much of HTTP/1.1 as a scraper needs
//! text      the exposition format, and the list of all metrics
//! ```

mod http;
mod peer;
mod server;
mod socket;
mod text;

pub(crate) use server::{Bound, Server};
