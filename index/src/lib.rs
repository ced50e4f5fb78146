//! What exists in a store: names, inodes, attributes, extents, over a small key-value trait.
//!
//! ```text
//! namespace   names, attributes, data commits: each one transaction
//!    |
//! schema      keys and records      extent   which bytes live where
//!    |
//! kv          mini-transactions
//!    |
//! engine      journal + snapshots (the truth), sled (a view of it)
//! ```

pub mod engine;
mod error;
pub mod extent;
pub mod kv;
mod namespace;
#[cfg(any(test, fuzzing))]
pub mod promises;
pub mod schema;
mod sync;
pub mod wire;

pub use error::Error;
pub use kv::Kv;
pub use namespace::{
    AttrChange, DataCommit, DirEntry, MapChange, NAME_MAX, Namespace, NewNode, ROOT, Removed,
    RenameMode, Xattr, XattrMode, commit_records,
};
