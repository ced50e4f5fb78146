//! Encodes bytes into frames and back: pure functions, no I/O, no threads.
//!
//! The encoder takes a chunk of array data and a hint about its elements, and
//! writes a self-describing frame. It treats the elements as a matrix of bytes:
//! a transform makes the columns of that matrix predictable, and every column
//! gets the cheapest coder that still gains something.
//!
//! Modules import only from those before them:
//!
//! ```text
//! error, checksum, simd    errors; XXH3; kernels compiled for the processor at hand
//! frame                    the format: header, directory, recipe
//! transform                elements to residuals and byte columns
//! entropy                  streams and residuals to fewer bytes
//! choose                   which transform and coders a chunk gets
//! encode, decode           the two directions
//! ```
//!
//! ```
//! use shale_codec::{Decoder, Effort, Encoder, FrameKind, FrameMeta, Hint};
//!
//! let raw: Vec<u8> = (0..4096u32).flat_map(|i| (i as f32).to_le_bytes()).collect();
//! let meta = FrameMeta { kind: FrameKind::Data, inode: 7, offset: 0, sequence: 1 };
//! let mut frame = Vec::new();
//! Encoder::new().encode(&meta, &Hint::Unknown, Effort::Fast, &raw, &mut frame)?;
//!
//! let mut back = Vec::new();
//! let header = Decoder::new().decode(&frame, &mut back)?;
//! assert_eq!(back, raw);
//! assert_eq!(header.meta, meta);
//! # Ok::<(), shale_codec::Error>(())
//! ```

mod checksum;
mod choose;
mod decode;
mod encode;
mod entropy;
mod error;
mod frame;
mod simd;
mod transform;

pub use choose::effort::Effort;
pub use choose::hint::{ByteOrder, ElementKind, Hint};
pub use decode::Decoder;
pub use encode::Encoder;
pub use error::Error;
pub use frame::{
    FrameHeader, FrameKind, FrameMeta, FrameSummary, HEADER_LEN, MAGIC, MAX_RAW_LEN, describe,
    describe_head, parse_header, plain_bytes,
};
