//! The source of an export.

use std::ffi::OsString;
use std::path::Path;

use crate::output::failure::Failure;

/// Everything about a file but its name and contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// The same for all names of one file.
    pub(crate) id: u64,
    pub(crate) kind: Kind,
    /// Permissions, without the type.
    pub(crate) mode: u32,
    pub(crate) owner: (u32, u32),
    pub(crate) accessed: Time,
    pub(crate) modified: Time,
    pub(crate) size: u64,
    /// Number of names.
    pub(crate) links: u64,
    /// Extended attributes, access control lists among them.
    pub(crate) xattrs: Vec<(OsString, Vec<u8>)>,
}

/// Seconds and nanoseconds.
pub(crate) type Time = (i64, u32);

/// The object behind a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
    Symlink(OsString),
    /// Type bits, and the number of a device.
    Special(u32, u64),
}

/// The contents of a file, in any order.
pub(crate) trait Contents {
    /// Fills the buffer; fewer bytes only at the end of the file.
    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize, Failure>;

    /// The next byte at or after an offset that is not in a hole.
    fn next_data(&mut self, offset: u64) -> Result<Option<u64>, Failure>;

    /// Whether the file has changed since it was opened.
    fn has_changed(&self) -> Result<bool, Failure>;
}

/// A tree that can be copied.
pub(crate) trait Source {
    /// Identifies a file.
    type Id: Clone;

    /// Where the copy begins.
    fn top(&self) -> Self::Id;

    /// The metadata of a file. Links are not followed.
    fn node(&self, id: &Self::Id) -> Result<Node, Failure>;

    /// The entries of a directory, in the order of their names.
    fn entries(&self, id: &Self::Id) -> Result<Vec<(OsString, Self::Id)>, Failure>;

    /// The contents of a regular file.
    fn contents<'a>(&'a self, id: &Self::Id) -> Result<Box<dyn Contents + 'a>, Failure>;

    /// A directory that must not contain the target, which would be copied into itself.
    fn place(&self) -> &Path;
}

/// Whether an attribute is ShaleFS's own and has no meaning elsewhere.
pub(crate) fn is_own(name: &[u8]) -> bool {
    name.starts_with(b"user.shale.") || name.starts_with(b"trusted.shale.")
}
