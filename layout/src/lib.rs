//! What the bytes of a file mean: variables, types, shapes, and where they lie.
//!
//! ```text
//! parse --> formats (classic, hdf5, npy, fits)     one parser per format
//!              |             |
//!           builder        reader                   disjoint extents | bytes under a budget
//!              |             |
//!       variable, extent   source
//!
//! layout --> pieces --> spans                       questions to the result
//!        --> shares, describe
//! ```
//! A layout is advice. A wrong or hostile file costs density, never correctness, and no more
//! memory and time than its [`ParseBudget`]: a parser trusts no length it reads, and when it gives up
//! it keeps what it has found.
//!
//! ```
//! use shale_layout::{Meaning, ParseOptions, parse};
//!
//! let mut file = b"\x93NUMPY\x01\x00\x46\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }".to_vec();
//! file.resize(80, b' ');
//! file.extend([0; 24]);
//! let layout = parse(&file, &ParseOptions::default());
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
mod describe;
mod error;
mod extent;
mod fields;
mod format;
mod formats;
mod layout;
mod options;
mod parse;
mod pieces;
mod ranges;
mod reader;
mod shares;
mod source;
mod spans;
mod variable;

pub use describe::describe;
pub use error::Error;
pub use extent::{Coding, Content, LayoutExtent};
pub use layout::Layout;
pub use options::{ParseBudget, ParseOptions};
pub use parse::parse;
pub use pieces::Meaning;
pub use source::ReadAt;
pub use variable::{ByteOrder, Element, ElementKind, Variable, dimensions};
