//! POSIX semantics over a store, and the FUSE wire.
//!
//! ```text
//! fuse/      FUSE requests to operations: decode, call, reply; a mount and its end
//! ops/       one file for each operation, free of FUSE
//! policy/    policies of directories and files
//! layout/    layouts of files, as far as the store needs them
//! settle/    the thread of the background pass
//! control/   virtual attributes: reports and requests
//! reports/   reports about files, as text and as JSON
//! stats/     the statistics of a mount, and the forms in which they are shown
//! options/   options of a mount
//! ```

mod acl;
mod attr;
mod control;
mod counters;
mod durability;
mod error;
mod fs;
mod fuse;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod handle;
pub mod layout;
mod ops;
pub mod options;
pub mod policy;
mod privileges;
pub mod reports;
mod settle;
mod settle_control;
pub mod stats;
#[cfg(test)]
mod testing;

pub use attr::Attr;
pub use durability::Finish;
pub use error::Error;
pub use fs::{Caller, Fs, MountLocation};
pub use fuse::{Mounted, Unmounter, mount};
pub use handle::{Access, Handle};
pub use ops::{SetAttr, WriteCall, WriteSource};
pub use options::{MountOptions, Settling};
