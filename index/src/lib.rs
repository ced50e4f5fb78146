//! What exists in a store: names, inodes, attributes, extents, over a small key-value trait.
//!
//! ```text
//! namespace   names, attributes, data commits: each one transaction
//!    |
//! schema      keys and records      extent   which bytes live where
//!    |
//! kv          mini-transactions
//!    |
//! engine      journal + snapshots (the truth), sled (the base: a copy of it)
//! ```

pub mod encoding;
pub mod engine;
mod error;
pub mod extent;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod kv;
mod namespace;
mod primitives;
pub mod schema;
#[cfg(feature = "shuttle")]
pub mod testing;

pub use error::Error;
pub use kv::Kv;
pub use namespace::{
    AttrChange, DataCommit, DirEntry, MapChange, NAME_MAX, Namespace, NewNode, ROOT, Removed,
    RenameMode, Renamed, Xattr, XattrMode,
};
pub use schema::Ino;
