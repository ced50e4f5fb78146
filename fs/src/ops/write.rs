//! Writing.

use shale_store::index::AttrChange;

use super::setattr::{CAPABILITY, without_privileges};
use crate::{Error, Fs, Handle};

/// Where the bytes of a write come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteSource {
    /// A program, which waits for the answer.
    Program,
    /// The same past the kernel's write-back cache (`O_DIRECT`). The times are those that the
    /// kernel has noted and shows; it sends them if they are others than before.
    Direct,
    /// The kernel's write-back cache, which accepted them before. It tells the times by itself: a
    /// write that it sends late must not change them again.
    Cache,
    /// A mapping, where the kernel does not keep the times.
    Mapping,
}

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
        source: WriteSource,
    ) -> Result<(), Error> {
        self.settling.note_traffic(data.len());
        self.follow_policy(handle)?;
        self.foresee_write(&handle.file, offset, data);
        let file = &handle.file;
        match source {
            WriteSource::Program => self.store.write(file, offset, data)?,
            WriteSource::Direct => self.store.write_past(file, offset, data)?,
            WriteSource::Cache => self.store.write_back(file, offset, data, false)?,
            WriteSource::Mapping => self.store.write_back(file, offset, data, true)?,
        }
        self.counters.written.add(data.len() as u64);
        handle.file.note_written(data.len());
        self.follow_write(&handle.file, offset, data.len() as u64);
        if kill_privileges || source != WriteSource::Cache {
            self.kill_privileges(handle.file.ino(), kill_privileges)?;
        }
        Ok(())
    }

    /// Takes away the capabilities of a program, which nobody keeps alive by writing, and set-id
    /// bits if they have to go. Before a cached write the kernel has done so.
    fn kill_privileges(&self, ino: u64, set_ids: bool) -> Result<(), Error> {
        let mut change = AttrChange::default();
        if self.namespace().xattr(ino, CAPABILITY)?.is_some() {
            change.xattrs.push((CAPABILITY.to_vec(), None));
        }
        if set_ids {
            let mode = self.namespace().inode(ino)?.mode;
            change.mode = Some(without_privileges(mode)).filter(|&kept| kept != mode);
        }
        if change.mode.is_some() || !change.xattrs.is_empty() {
            self.store.set_attr(ino, &change)?;
        }
        Ok(())
    }
}
