//! Output of a command for its user: reports, failures, progress.

pub(crate) mod failure;
pub(crate) mod progress;
pub(crate) mod report;
pub(crate) mod size;
pub(crate) mod table;

/// The version of the JSON output, errors included. It grows when a field is removed or changes its
/// meaning; docs/json.md lists them.
pub(crate) const SCHEMA: u32 = 1;
