//! Reports that are JSON, as the daemon writes them and the command reads them.

use serde::{Deserialize, Serialize};

/// Files that could not be read since the mount began, and still cannot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Damaged {
    /// Number of files.
    pub count: u64,
    /// The files, as many as fit.
    pub files: Vec<DamagedFile>,
}

/// A file with data that cannot be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DamagedFile {
    /// From the root of the mount.
    pub path: String,
    /// Where in the file reading failed.
    pub offset: u64,
    /// Why.
    pub error: String,
}
