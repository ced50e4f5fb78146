//! Renaming.

use shale_index::{Ino, RenameMode};

use crate::{Error, Fs};

impl Fs {
    /// Moves a name; `flags` as renameat2(2).
    ///
    /// # Errors
    /// As renameat2(2).
    pub fn rename(
        &self,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        flags: u32,
    ) -> Result<(), Error> {
        let mode = match flags {
            0 => RenameMode::Replace,
            libc::RENAME_NOREPLACE => RenameMode::NoReplace,
            libc::RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return Err(Error::Invalid("flags")),
        };
        let renamed = self
            .store
            .rename(parent, name, new_parent, new_name, mode)?;
        if let Some(replaced) = renamed.replaced {
            self.after(replaced);
        }
        // Policies follow the place: a moved file has those of its new directory.
        if parent != new_parent {
            if renamed.moved.is_dir() || renamed.exchanged.is_some_and(|inode| inode.is_dir()) {
                self.policies.changed();
            } else {
                self.policies.moved();
            }
        }
        self.finish_names()
    }
}
