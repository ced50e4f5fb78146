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
pub(crate) mod setattr;
pub(crate) mod statfs;
#[cfg(test)]
mod tests;
mod unlink;
pub(crate) mod write;
pub(crate) mod xattr;
