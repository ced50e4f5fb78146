//! Names that move.

use shale_store::index::RenameMode;

use crate::error::refused;
use crate::{Error, Fs};

impl Fs {
    /// Moves a name; `flags` as renameat2(2).
    ///
    /// # Errors
    /// As renameat2(2).
    pub fn rename(
        &self,
        parent: u64,
        name: &[u8],
        new_parent: u64,
        new_name: &[u8],
        flags: u32,
    ) -> Result<(), Error> {
        let mode = match flags {
            0 => RenameMode::Replace,
            libc::RENAME_NOREPLACE => RenameMode::NoReplace,
            libc::RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return refused(libc::EINVAL),
        };
        let (removed, _) = self
            .namespace()
            .rename(parent, name, new_parent, new_name, mode)?;
        if let Some(removed) = removed {
            self.after(removed);
        }
        if parent != new_parent {
            self.relocated(new_parent, new_name)?;
            if mode == RenameMode::Exchange {
                self.relocated(parent, name)?;
            }
        }
        self.names_changed()
    }

    /// Policies follow the place: what was moved has those of its new directory.
    fn relocated(&self, parent: u64, name: &[u8]) -> Result<(), Error> {
        match self.namespace().lookup(parent, name) {
            Ok(inode) if !inode.is_dir() => self.policies.moved(),
            Ok(_) => self.policies.changed(),
            // Moved on already by somebody else, who saw to it.
            Err(e) if e.errno() == libc::ENOENT => self.policies.changed(),
            Err(e) => return Err(e.into()),
        }
        Ok(())
    }
}
