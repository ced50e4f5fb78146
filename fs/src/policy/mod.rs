//! Policies: requests of an administrator or user about a directory or file, as extended
//! attributes.
//!
//! A value that is set on a directory or file applies there and to everything below, unless a
//! nearer one is set. A `trusted.shale.*` value of root overrides every `user.shale.*`, however
//! near. Values are looked up when data is written, so a change applies to data written later. The
//! chunk size is looked up when a file is created.
//!
//! ```text
//! key        the policies and their names
//! value      their values, as text and as a type
//! effective  the values in effect at a directory or file, and what follows from them
//! cache      looks them up, once for each directory
//! attribute  the names of the attributes that are policies
//! refusals   logs why attributes were refused, at a limited rate
//! explain    shows them and where they come from
//! ```

mod attribute;
mod cache;
mod effective;
mod explain;
mod key;
mod refusals;
mod value;

pub(crate) use attribute::{is_own, parse_name};
pub(crate) use cache::{HandlePolicy, Policies};
pub use effective::MountDefaults;
pub(crate) use effective::{Effective, Policy};
pub use key::{Authority, Key};
pub use refusals::tells_of_refusal;
pub use value::{BadValue, Codec, Durability, Settle, Value};
