//! A disk for tests: it fails on command, and knows what would survive a loss of power.
//!
//! Everything goes to an ordinary directory at once, as it does to the page cache of a machine. In
//! addition the disk remembers which contents have been synced, and which changes of names have
//! not. [`FaultDisk::after_power_loss`] creates the directory that a machine would find afterwards.

mod backing;
mod disk;
mod power_loss;
mod shadow;
mod step;
#[cfg(test)]
mod tests;

pub use disk::FaultDisk;
pub use power_loss::copy_dir;
pub use step::{Left, Step, Tear};
