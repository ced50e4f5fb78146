//! Facts about the machine: mounts, paths, directories of stores. Nothing here knows a command.

pub(crate) mod file_id;
pub(crate) mod mountinfo;
pub(crate) mod paths;
pub(crate) mod store_dir;
