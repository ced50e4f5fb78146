//! The small trait through which every byte of a store is read and written.
//!
//! Packs, the index journal and the superblock never touch the operating system directly: they
//! go through [`Backing`] and [`BackingFile`]. That keeps the durability rules in one place and
//! lets tests replace the disk with one that loses, tears or refuses writes.
//!
//! Paths are relative to the root of the store. Nothing is durable until the matching sync call
//! has returned: [`BackingFile::sync_data`] for contents and length, [`Backing::sync_dir`] for
//! names.
//!
//! Modules import only from those before them: `backing` (the traits), `retry`, `process`; then
//! `device`; then `testing`.

mod backing;
mod device;
mod process;
mod retry;
mod testing;

pub use backing::{Access, Backing, BackingEntry, BackingFile, Space, StoreLocation};
pub use device::choose::{Device, DeviceOptions, open_device};
pub use device::lustre::{StripeCount, Striping};
pub use device::pmem::PROBE;
pub use device::posix::PosixBacking;
pub use device::read_only::ReadOnly;
pub use process::malloc::release_memory;
pub use process::priority::{Priority, set_priority};
pub use testing::failpoint;
#[cfg(feature = "shuttle")]
pub use testing::primitives;
#[cfg(any(test, feature = "faults"))]
pub use testing::{faults, mutate, static_files};
