//! Space.

use shale_index::ROOT;

use crate::{Error, Fs};

/// What `statfs(2)` shows, in units of [`BLOCK`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatFs {
    /// Size of the device.
    pub blocks: u64,
    /// Free, including what is reserved for root.
    pub free: u64,
    /// Free for every user.
    pub available: u64,
    /// Inodes that exist or could exist.
    pub inodes: u64,
    /// Inodes that could still be created.
    pub inodes_free: u64,
}

/// Unit of [`StatFs`].
pub(crate) const BLOCK: u32 = 4096;

/// Index space that a new inode takes, generously.
const INODE_COST: u64 = 1024;

impl Fs {
    /// Space of the device behind the store.
    ///
    /// # Errors
    /// What the device says.
    pub fn statfs(&self) -> Result<StatFs, Error> {
        let space = self.store.space()?;
        let totals = self.store.rollup(ROOT)?;
        let inodes_free = space.available / INODE_COST;
        Ok(StatFs {
            blocks: space.total / u64::from(BLOCK),
            free: space.free / u64::from(BLOCK),
            available: space.available / u64::from(BLOCK),
            inodes: totals.files + totals.dirs + 1 + inodes_free,
            inodes_free,
        })
    }
}
