//! Writing.

use shale_store::index::AttrChange;

use super::setattr::without_privileges;
use crate::{Error, Fs, Handle};

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
        self.settling.note_traffic(data.len());
        self.foresee_write(&handle.file, offset, data);
        self.store.write(&handle.file, offset, data)?;
        self.follow_write(&handle.file, offset, data.len() as u64);
        if kill_privileges {
            self.kill_privileges(handle.file.ino())?;
        }
        Ok(())
    }

    fn kill_privileges(&self, ino: u64) -> Result<(), Error> {
        let mode = self.namespace().inode(ino)?.mode;
        let kept = without_privileges(mode);
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
