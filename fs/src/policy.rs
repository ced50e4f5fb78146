//! Policies: what an administrator asks of a directory or a file through extended attributes.
//!
//! A value that is set on a directory or file holds there and for everything below, unless
//! something nearer sets another. Whatever root sets as `trusted.shale.*` wins over every
//! `user.shale.*`, however near that is. Values are looked up when something is written, so a
//! change holds for what is written later; the chunk size is looked up when a file is created.
//!
//! ```text
//! key       what can be asked for, and under which names
//! value     what can be asked, as text and as a type
//! held      the values that hold at a directory or file, and what follows from them
//! cache     looks them up, once for each directory
//! change    sets and removes them
//! refusals  says why some cannot be set, not too often
//! explain   says them and where they come from
//! ```

mod cache;
mod change;
mod explain;
mod held;
mod key;
mod refusals;
mod value;

pub(crate) use cache::{Followed, Policies};
pub(crate) use change::is_own;
#[cfg(any(test, fuzzing))]
pub(crate) use change::parse_name;
pub use held::Defaults;
pub(crate) use held::{Held, Policy};
pub use key::{Authority, Key};
pub use refusals::tells_of_refusal;
pub use value::{BadValue, Codec, Durability, Settle, Value};
