//! Options and limits of a parse.

use std::time::Duration;

/// The limits of one parse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseBudget {
    /// Bytes that may be read, those read again included.
    pub read_bytes: u64,
    /// Wall time.
    pub time: Duration,
    /// Memory for the result and for finding it. A block cache of 1 MiB and one structure of at
    /// most 1 MiB are not counted.
    pub structure_bytes: usize,
}

impl Default for ParseBudget {
    fn default() -> Self {
        Self {
            read_bytes: 64 << 20,
            time: Duration::from_secs(2),
            structure_bytes: 14 << 20,
        }
    }
}

/// How to parse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ParseOptions {
    /// Its limits.
    pub budget: ParseBudget,
    /// The file is still being written: extents may lie beyond its present end, and records may
    /// follow without end. Otherwise every extent is truncated at the length of the file.
    pub growing: bool,
}
