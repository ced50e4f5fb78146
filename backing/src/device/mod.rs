//! The devices a store can be on: any directory, persistent memory, Lustre.

pub(crate) mod choose;
pub(crate) mod lustre;
mod mapped;
mod persist;
pub(crate) mod pmem;
pub(crate) mod posix;
pub(crate) mod read_only;
mod writeout;
