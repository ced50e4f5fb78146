//! The journal: every commit in order, the truth of the index.
//!
//! It is a chain of segment files `index/journal-<first version>`. A commit is one record, written
//! at once, so that it survives the death of the process as soon as it returned; it survives a loss
//! of power once it was synced. `record` has the bytes, `segment` the files, `writer` appends and
//! syncs, `reader` evaluates a set of segments.

pub(crate) mod reader;
pub(crate) mod record;
pub(crate) mod segment;
pub(crate) mod writer;
