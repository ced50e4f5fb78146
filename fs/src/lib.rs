//! POSIX semantics over a store, and the FUSE wire.
//!
//! ```text
//! mount      a mount and its end
//! fuse       FUSE requests to operations: decode, call, reply
//! gate       asks for room before the kernel's cache accepts more
//! ops/       one file for each operation, free of FUSE
//! policy     what is asked of directories and files, and what holds for them
//! settler    the background pass
//! ```

mod acl;
mod changes;
mod counters;
pub mod damage;
mod dirty_limit;
mod error;
#[cfg(test)]
mod fixture;
pub mod foresight;
mod fs;
mod fuse;
mod gate;
mod handles;
pub mod live;
pub mod metrics;
mod mount;
mod ops;
pub mod options;
pub mod policy;
#[cfg(any(test, fuzzing))]
pub mod promises;
mod regions;
mod settler;
pub mod state;
mod syncers;
mod understanding;
mod unmount;
mod variables;

pub use error::Error;
pub use fs::{Attr, Caller, Fs, Handle, Place};
pub use mount::{Mounted, mount};
pub use ops::lseek::Whence;
pub use ops::readdir::Listed;
pub use ops::setattr::SetAttr;
pub use ops::write::WriteSource;
pub use options::MountOptions;
pub use settler::Settling;
pub use unmount::Unmounter;
