//! Is this machine fit for ShaleFS, and is this store well kept?
//!
//! ```text
//! facts    what the system says; nothing is judged
//! checks   what the facts mean, and what to change; nothing is asked
//! ```

pub(crate) mod checks;
pub(crate) mod facts;
