//! Operations of the file system, one file each, free of FUSE.

mod copy_file_range;
mod create;
mod fallocate;
mod fsync;
mod getattr;
mod link;
mod lookup;
mod lseek;
mod open;
mod policy;
mod read;
mod readdir;
mod readlink;
mod rename;
mod setattr;
mod statfs;
#[cfg(test)]
mod tests;
mod unlink;
mod write;
mod xattr;

pub use setattr::SetAttr;
pub(crate) use statfs::BLOCK;
pub use write::{WriteCall, WriteSource};
