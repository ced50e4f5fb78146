//! Privileges that a file loses when its owner or its contents change.

use shale_index::AttrChange;
use shale_store::File;

use crate::{Error, Fs};

/// The extended attribute that holds the capabilities of a program.
pub(crate) const CAPABILITY: &[u8] = b"security.capability";
const S_ISUID: u32 = 0o4000;
/// Set-group-ID; on a directory, new entries inherit its group.
pub(crate) const S_ISGID: u32 = 0o2000;
const S_IXGRP: u32 = 0o0010;

/// A mode without the set-id bits that a change of owner or contents takes away.
pub(crate) fn without_privileges(mode: u32) -> u32 {
    let kept = mode & !S_ISUID;
    if mode & S_IXGRP == 0 {
        return kept;
    }
    kept & !S_ISGID
}

impl Fs {
    /// Takes away the capabilities of a program, which no writer may preserve, and the set-id bits
    /// if `set_ids`. Before a cached write the kernel has done so.
    pub(crate) fn kill_privileges(&self, file: &File, set_ids: bool) -> Result<(), Error> {
        let ino = file.ino();
        let mut change = AttrChange::default();
        if !file.is_unprivileged() {
            // Noted first: an attribute that is set meanwhile takes the note away.
            file.note_unprivileged(true);
            if self.store.xattr(ino, CAPABILITY)?.is_some() {
                change.xattrs.push((CAPABILITY.to_vec(), None));
            }
        }
        if set_ids {
            let mode = self.inode(ino)?.mode;
            change.mode = Some(without_privileges(mode)).filter(|&kept| kept != mode);
        }
        if change.mode.is_some() || !change.xattrs.is_empty() {
            self.store.set_attr(ino, &change)?;
        }
        Ok(())
    }
}
