//! Writing.

use shale_store::index::AttrChange;

use crate::{Error, Fs, Handle};

const S_ISUID: u32 = 0o4000;
const S_ISGID: u32 = 0o2000;
const S_IXGRP: u32 = 0o0010;

impl Fs {
    /// Writes at an offset. `kill_privileges`: the writer may not keep set-id bits alive.
    ///
    /// # Errors
    /// `EFBIG`, `ENOSPC`, or what prevents writing behind.
    pub fn write(
        &self,
        handle: &Handle,
        offset: u64,
        data: &[u8],
        kill_privileges: bool,
    ) -> Result<(), Error> {
        self.store.write(&handle.file, offset, data)?;
        if kill_privileges {
            self.kill_privileges(handle.file.ino())?;
        }
        Ok(())
    }

    fn kill_privileges(&self, ino: u64) -> Result<(), Error> {
        let mode = self.namespace().inode(ino)?.mode;
        let mut kept = mode & !S_ISUID;
        if mode & S_IXGRP != 0 {
            kept &= !S_ISGID;
        }
        if kept != mode {
            let change = AttrChange {
                mode: Some(kept),
                ..AttrChange::default()
            };
            self.store.set_attr(ino, &change)?;
        }
        Ok(())
    }
}
