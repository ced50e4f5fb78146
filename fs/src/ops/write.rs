//! Writing.

use shale_store::index::AttrChange;

use super::setattr::without_privileges;
use crate::{Error, Fs, Handle};

impl Fs {
    /// Writes at an offset. `kill_privileges`: the writer may not keep set-id bits alive.
    /// `cached`: the bytes come from the kernel's cache, which tells the times by itself; a write
    /// that it sends late must not change them again.
    ///
    /// # Errors
    /// `EFBIG`, `ENOSPC`, or what prevents writing behind.
    pub fn write(
        &self,
        handle: &Handle,
        offset: u64,
        data: &[u8],
        kill_privileges: bool,
        cached: bool,
    ) -> Result<(), Error> {
        self.settling.note_traffic(data.len());
        self.follow_policy(handle)?;
        self.foresee_write(&handle.file, offset, data);
        if cached {
            self.store.write_back(&handle.file, offset, data)?;
        } else {
            self.store.write(&handle.file, offset, data)?;
        }
        self.counters.written.add(data.len() as u64);
        handle.file.note_written(data.len());
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
