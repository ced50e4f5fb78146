//! Operations that can fail, and the remains of a failure.

/// The operations that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Creating a file.
    Create,
    /// Creating a directory.
    CreateDir,
    /// Opening a file that exists.
    Open,
    /// Reading from a file or listing a directory.
    Read,
    /// Asking for the length of a file.
    Len,
    /// Asking for the space of the device.
    Space,
    /// Writing to a file.
    Write,
    /// Truncating or extending a file.
    SetLen,
    /// Syncing a file.
    Sync,
    /// Reserving space.
    Reserve,
    /// Renaming a file.
    Rename,
    /// Removing a file or a directory.
    Remove,
    /// Syncing a directory.
    SyncDir,
}

impl Step {
    /// Whether it changes the disk, or which part of it is durable.
    #[must_use]
    pub fn is_change(self) -> bool {
        !matches!(self, Self::Open | Self::Read | Self::Len | Self::Space)
    }
}

/// The remains of a failing write on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tear {
    /// Nothing of it.
    Nothing,
    /// Its first half.
    Half,
    /// All of the first one, nothing of the next ones.
    AllOnce,
}

/// The remains of unsynced changes after a loss of power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Nothing.
    Nothing,
    /// Everything.
    Everything,
    /// Any subset of the sectors and name changes; the number is the seed.
    Some(u64),
}
