//! The frame: a chunk's stored form.
//!
//! ```text
//! +--------+-------------------------------+---------------------------------+
//! | header | directory                     | payload                         |
//! | 64     | recipe | edges | segments ... | segment 0 | segment 1 | ...     |
//! +--------+-------------------------------+---------------------------------+
//!                              |                  |
//!            hash of raw bytes + one entry   stream 0 | stream 1 | ...
//!            per stream (coder, lengths,     in the order of the entries,
//!            checksum)                       without gaps
//! ```
//!
//! Every byte is under a checksum: the header's own, the directory's (kept in
//! the header), one per stream (kept in the directory) and one over the raw
//! bytes of each segment (kept there too). A segment decodes on its own.
//!
//! All integers are little-endian. [`header`] and [`directory`] have the
//! byte-offset tables.

mod directory;
mod header;
mod recipe;

pub(crate) use directory::{
    Directory, StreamEntry, directory_len, put_segment, put_stream, stream_count,
};
pub(crate) use header::write_header;
pub use header::{FrameHeader, FrameKind, FrameMeta, HEADER_LEN, MAGIC, MAX_RAW_LEN, parse_header};
pub(crate) use recipe::{NumberMap, Predictor, Recipe, Scheme};
