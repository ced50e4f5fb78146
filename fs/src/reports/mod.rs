//! Reports about files, in the forms in which they are sent.
//!
//! ```text
//! variables   what each variable of a file takes in the store
//! types       reports that are JSON, shared with the command
//! state       how far a file has come, in the words that users see
//! ```

mod state;
mod types;
mod variables;

pub use state::at_rest;
pub(crate) use state::is_incompressible;
pub use types::{Damaged, DamagedFile};
pub(crate) use variables::VariableReports;
