//! Errors of the index.

use std::io;
use std::path::PathBuf;

/// What can go wrong in the index.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The backing store refused.
    #[error("{action} {path}: {source}", path = path.display())]
    Io {
        /// What was being done ("append to", "sync", ...).
        action: &'static str,
        /// The file concerned, relative to the store.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// Bytes that fail their checksum or do not decode.
    #[error("{what} is damaged: {detail}")]
    Corrupt {
        /// Which record, with its key or position.
        what: String,
        /// What was expected and found.
        detail: String,
    },
    /// A format version that this program does not know.
    #[error("{what} has format version {found}, this program knows {known}")]
    Format {
        /// Which file.
        what: String,
        /// The version found.
        found: u32,
        /// The newest version known.
        known: u32,
    },
    /// The engine was closed or has failed for good.
    #[error("the index is closed: {0}")]
    Closed(String),
    /// Nothing may be changed any more.
    #[error("the index takes no changes: {0}")]
    Fenced(String),
    /// The engine was opened to read only.
    #[error("the index is read-only")]
    ReadOnly,
    /// Checkpoints keep failing, and too many changes wait for one.
    #[error("the index takes no changes until a checkpoint succeeds; the log says why none does")]
    Stalled,
    /// Other processes kept changing what a transaction had read, or its fate is unknown.
    #[error("the transaction did not get through: try again")]
    Conflict,
    /// A transaction changes more bytes than one commit may.
    #[error("a commit of {len} bytes is larger than {limit} bytes")]
    CommitTooLarge {
        /// Bytes of its changes.
        len: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// A key is longer than the engine allows.
    #[error("a key of {len} bytes is longer than {limit} bytes")]
    KeyTooLong {
        /// Bytes of the key.
        len: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// The engine cannot report commits: other processes make some of them.
    #[error("this engine cannot report its commits")]
    CannotFollow,
    /// A put names a lease that this process does not hold.
    #[error("the lease belongs to another process")]
    ForeignLease,
    /// The inode or the name is not there.
    #[error("no such file or directory")]
    NotFound,
    /// The name exists already.
    #[error("the name exists")]
    Exists,
    /// It is not a directory.
    #[error("not a directory")]
    NotDirectory,
    /// It is a directory.
    #[error("is a directory")]
    IsDirectory,
    /// The directory has entries.
    #[error("the directory is not empty")]
    NotEmpty,
    /// The name is longer than [`NAME_MAX`](crate::NAME_MAX).
    #[error("the name is too long")]
    NameTooLong,
    /// Not a name: empty, `.`, `..`, or with a slash or a zero byte in it.
    #[error("not a valid name")]
    InvalidName,
    /// A directory would become its own ancestor.
    #[error("a directory cannot be moved into itself")]
    Loop,
    /// The root directory cannot be moved.
    #[error("the root directory cannot be moved")]
    IsRoot,
    /// An inode that has a name cannot be purged.
    #[error("the inode still has a name")]
    StillNamed,
    /// A directory cannot have a second name.
    #[error("a directory cannot have a second name")]
    LinkToDirectory,
    /// The inode has as many names as it can have.
    #[error("too many links")]
    TooManyLinks,
    /// The extended attribute is not there.
    #[error("no such attribute")]
    NoData,
    /// The name of an extended attribute is empty or too long.
    #[error("not a valid attribute name")]
    InvalidAttribute,
    /// The value of an extended attribute is too large.
    #[error("the attribute value is too large")]
    TooLarge,
    /// The names of an inode's extended attributes leave no room for another one.
    #[error("no room for another attribute")]
    AttributesFull,
}
