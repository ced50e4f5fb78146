//! Writing.

use crate::durability::{Change, Finish};
use crate::{Error, Fs, Handle};

/// Where the bytes of a write come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteSource {
    /// A program, which waits for the answer.
    Program,
    /// The same past the kernel's write-back cache (`O_DIRECT`). The kernel has noted the times and
    /// shows them; it sends them if they differ from before.
    Direct,
    /// The kernel's write-back cache, which accepted them before. The kernel sends the times
    /// separately: a write that it sends late must not change them again.
    Cache,
    /// A mapping, where the kernel does not keep the times.
    Mapping,
}

impl WriteSource {
    /// Whether the kernel had accepted the bytes before it sent them.
    pub(crate) fn is_cached(self) -> bool {
        matches!(self, Self::Cache | Self::Mapping)
    }
}

/// How a write arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteCall {
    /// Where the bytes come from.
    pub source: WriteSource,
    /// The call asks for durability (`O_SYNC`, `RWF_DSYNC`).
    pub sync: bool,
    /// The writer may not keep set-id bits alive.
    pub kill_privileges: bool,
}

impl From<WriteSource> for WriteCall {
    /// A write without further requests.
    fn from(source: WriteSource) -> Self {
        Self {
            source,
            sync: false,
            kill_privileges: false,
        }
    }
}

impl Fs {
    /// Writes at an offset; says when the call may return.
    ///
    /// # Errors
    /// `EFBIG`, `ENOSPC`, or what prevents writing behind.
    pub fn write(
        &self,
        handle: &Handle,
        offset: u64,
        data: &[u8],
        call: WriteCall,
    ) -> Result<Finish, Error> {
        self.follow_policy(handle)?;
        let file = &handle.file;
        self.layouts.before_write(file, offset, data);
        match call.source {
            WriteSource::Program => self.store.write(file, offset, data)?,
            WriteSource::Direct => self.store.write_past(file, offset, data)?,
            WriteSource::Cache => self.store.write_back(file, offset, data, false)?,
            WriteSource::Mapping => self.store.write_back(file, offset, data, true)?,
        }
        self.counters.written.add(data.len() as u64);
        file.note_written(data.len());
        self.layouts
            .after_write(&self.store, file, offset, data.len() as u64);
        if call.kill_privileges || call.source != WriteSource::Cache {
            self.kill_privileges(file, call.kill_privileges)?;
        }
        let change = if call.source.is_cached() {
            Change::WrittenBack
        } else {
            Change::Contents { sync: call.sync }
        };
        Ok(self.finish(handle, change))
    }
}
