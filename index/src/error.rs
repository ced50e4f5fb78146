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
    /// Other processes kept changing what a transaction had read.
    #[error("the transaction did not get through: try again")]
    Conflict,
    /// The session has ended: an engine has not heard of it for too long, or an administrator has
    /// evicted it.
    #[error("the session has ended: {0}")]
    SessionEnded(String),
    /// A transaction was sent, no answer came, and no server can tell any more what became of it:
    /// it may have happened. Only when the session has ended or a deadline has passed meanwhile.
    #[error("it is not known whether the transaction happened: {0}")]
    OutcomeUnknown(String),
    /// No server of a replicated engine answers.
    #[error("no metadata server answers: {0}")]
    Unavailable(String),
    /// A replicated engine must not be used as it is.
    #[error("{0}")]
    Refused(String),
    /// The contents of a file are no longer what a change was made from.
    #[error("the file has been changed meanwhile: look again")]
    Stale,
    /// A transaction changes a key twice.
    #[error("a transaction changes the key {0} twice")]
    KeyTwice(String),
    /// A transaction has more compares or operations than the engine takes.
    #[error("a transaction with {count} compares or operations is larger than {limit}")]
    TooManyOps {
        /// Compares or operations.
        count: usize,
        /// How many the engine takes.
        limit: usize,
    },
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
