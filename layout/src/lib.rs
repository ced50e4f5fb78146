//! Bytes of a file to what they mean: variables, types, shapes, and where they lie.
//!
//! ```text
//! parse --> classic, hdf5, npy, fits      one parser per format
//!              |          |
//!            reader     builder           budget, what was read | sorted, disjoint extents
//!              |
//!            source                       the bytes
//! ```
//! A layout is advice. A wrong or hostile file costs density, never correctness, and no more
//! memory and time than its [`Budget`]: parsers take nothing on the word of a length, and give
//! up with what they have.
//!
//! ```
//! use shale_layout::{Meaning, Options, parse};
//!
//! let mut file = b"\x93NUMPY\x01\x00\x46\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }".to_vec();
//! file.resize(80, b' ');
//! file.extend([0; 24]);
//! let layout = parse(&file, &Options::default());
//! assert_eq!(layout.variables()[0].shape, [2, 3]);
//! assert_eq!(layout.at(79).meaning, Meaning::Opaque);
//! assert_eq!(layout.at(84).offset, 80);
//! ```

#![forbid(unsafe_code)]
#![deny(
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::expect_used,
    clippy::panic,
    clippy::unreachable
)]
#![cfg_attr(
    test,
    allow(clippy::indexing_slicing, clippy::expect_used, clippy::panic)
)]

mod builder;
mod classic;
mod describe;
mod error;
mod extent;
mod fields;
mod fits;
mod format;
mod hdf5;
mod layout;
mod npy;
mod options;
mod parse;
mod pieces;
mod ranges;
mod reader;
mod segments;
mod shares;
mod source;
mod variable;

pub use describe::describe;
pub use error::Error;
pub use extent::{Coding, Content, Field, LayoutExtent};
pub use format::{Format, detect};
pub use layout::{Block, Layout};
pub use options::{Budget, Options};
pub use parse::parse;
pub use pieces::{Meaning, Piece, Pieces};
pub use ranges::Ranges;
pub use segments::Segment;
pub use source::ReadAt;
pub use variable::{ByteOrder, Element, ElementKind, Variable, dimensions};
