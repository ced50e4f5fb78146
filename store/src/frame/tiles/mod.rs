//! Arrays that are stored as tiles.
//!
//! A range of a file is a sequence of equal records; a record is a sequence of fields; a field is
//! an N-dimensional block of bytes. That describes a plain array (one field, a record for each step
//! of the slowest dimension) as well as the record variables of NetCDF classic, which take turns in
//! the file. Each field is cut into tiles across records; each tile is a frame.
//!
//! ```text
//! pack: ... | tile | tile | ... | directory | ...
//!            <---- body ------>
//! ```

mod directory;
mod geometry;
mod morton;
mod read;

pub(crate) use directory::TileDirectory;
pub(crate) use geometry::{Field, Geometry};
pub(crate) use read::Directories;
