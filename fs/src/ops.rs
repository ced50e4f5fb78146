//! Operations, one file each.

mod copy_file_range;
mod create;
mod fallocate;
mod fsync;
mod getattr;
mod link;
mod lookup;
pub(crate) mod lseek;
mod open;
mod read;
#[cfg(test)]
mod read_only;
pub(crate) mod readdir;
mod readlink;
mod rename;
pub(crate) mod setattr;
pub(crate) mod statfs;
mod unlink;
pub(crate) mod write;
pub(crate) mod xattr;
