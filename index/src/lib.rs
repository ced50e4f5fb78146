//! The index of a store: names, inodes, attributes, extents, over a small key-value trait.
//!
//! ```text
//! namespace   names, attributes, data commits: each one transaction
//!    |
//! schema      keys and records      extent   which bytes live where
//!    |
//! kv          mini-transactions
//!    |
//! engine      embedded: journal + snapshots (the truth), sled (the base: a copy of it)
//!             replicated: sessions of servers that many share
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
#[cfg(feature = "testing")]
pub mod testing;

pub use error::Error;
pub use kv::Kv;
pub use namespace::{
    AttrChange, Contents, DataCommit, DirEntry, Fold, INO_BLOCK_BITS, MapChange, NAME_MAX,
    Namespace, NewNode, Orphan, ROOT, Record, RecordCommit, Removed, RenameMode, Renamed, SEQUENCE,
    Xattr, XattrMode, old_sequences, upgraded,
};
pub use schema::Ino;
