//! Bytes to frames and back: pure functions, no I/O, no threads.
//!
//! A chunk of array data goes in together with what is known of it; a frame
//! comes out that says everything needed to get the chunk back. The elements
//! are seen as a matrix of bytes, a transform makes the columns of that matrix
//! dull, and every column gets the cheapest coder that still gains something.
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
mod decimal;
mod decode;
mod draft;
mod effort;
mod encode;
mod error;
mod exceptions;
mod fate;
mod frame;
mod gaps;
mod hint;
mod memory;
mod numeric;
mod pace;
mod plan;
mod predict;
mod rans;
mod real;
mod residual;
mod sample;
mod shuffle;
mod simd;
mod stream;
mod summary;
mod word;

pub use decode::Decoder;
pub use effort::{Effort, ParseEffortError};
pub use encode::Encoder;
pub use error::Error;
pub use frame::{FrameHeader, FrameKind, FrameMeta, HEADER_LEN, MAGIC, MAX_RAW_LEN, parse_header};
pub use hint::{ByteOrder, ElementKind, Hint};
pub use summary::{FrameSummary, describe, describe_head, plain_bytes};
