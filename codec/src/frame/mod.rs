//! The frame: how a chunk is stored.
//!
//! ```text
//! +--------+-------------------------------+---------------------------------+
//! | header | directory                     | payload                         |
//! | 64     | recipe | edges | blocks ...   | block 0 | block 1 | ...         |
//! +--------+-------------------------------+---------------------------------+
//!                              |                  |
//!            hash of raw bytes + one entry   stream 0 | stream 1 | ...
//!            per stream (coder, lengths,     in the order of the entries,
//!            checksum)                       without gaps
//! ```
//!
//! Every byte is under a checksum: the header's own, the directory's (kept in
//! the header), one per stream (kept in the directory) and one over the raw
//! bytes of each block (kept there too). A block decodes on its own.
//!
//! All integers are little-endian. [`header`] and [`directory`] have the
//! byte-offset tables.

pub(crate) mod builder;
mod codes;
mod directory;
mod header;
mod recipe;
mod summary;

pub(crate) use directory::{
    Coder, Filter, FrameDirectory, StreamEntry, directory_len, stream_count,
};
pub use header::{FrameHeader, FrameKind, FrameMeta, HEADER_LEN, MAGIC, MAX_RAW_LEN, parse_header};
pub(crate) use recipe::{DENOMINATORS, NumberMap, Predictor, Recipe, Scheme};
pub use summary::{FrameSummary, describe, describe_head, plain_bytes};
