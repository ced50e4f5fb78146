//! What is durable when an operation returns. Decided here and nowhere else.
//!
//! An operation ends by naming what it has changed. The mount (`sync`, `dirsync`), the policy of
//! the file (`durability=sync`), the descriptor (`O_SYNC`) and the call itself (`RWF_DSYNC`) say
//! whether it has to wait for the device.

use crate::options::Synchronous;
use crate::{Error, Fs, Handle};

/// The changes of an operation through a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Contents or size, by a call that a program waits for.
    Contents {
        /// The call itself asks for durability.
        sync: bool,
    },
    /// Contents that the kernel's cache had accepted before. No program waits for them: `fsync`
    /// and closing the file do.
    WrittenBack,
    /// Nothing: a descriptor is being closed.
    Closing,
}

/// When an operation on an open file may return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// Now.
    Now,
    /// When [`Fs::fsync`] of the same handle has returned.
    AfterSync,
}

impl Fs {
    /// Ends an operation on an open file, which has followed the policy of the file since it began:
    /// when may it return?
    pub(crate) fn finish(&self, handle: &Handle, change: Change) -> Finish {
        let sync = match change {
            Change::WrittenBack => false,
            Change::Contents { sync } => {
                sync || handle.access.sync
                    || self.synchronous >= Synchronous::Everything
                    || handle.policy.asks_for_sync()
            }
            Change::Closing => handle.access.writes && handle.policy.asks_for_sync(),
        };
        if sync { Finish::AfterSync } else { Finish::Now }
    }

    /// The same, and waits until the operation may return.
    pub(crate) fn finish_and_wait(&self, handle: &Handle, change: Change) -> Result<(), Error> {
        match self.finish(handle, change) {
            Finish::Now => Ok(()),
            Finish::AfterSync => self.fsync(handle),
        }
    }

    /// Ends an operation that has changed names.
    pub(crate) fn finish_names(&self) -> Result<(), Error> {
        self.finish_metadata(Synchronous::Names)
    }

    /// Ends an operation that has changed attributes.
    pub(crate) fn finish_attributes(&self) -> Result<(), Error> {
        self.finish_metadata(Synchronous::Everything)
    }

    fn finish_metadata(&self, change: Synchronous) -> Result<(), Error> {
        if self.synchronous >= change {
            self.store.sync_metadata()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use shale_index::ROOT;

    use super::*;
    use crate::testing::file_system;
    use crate::{Access, Caller, WriteCall, WriteSource};

    #[test]
    fn only_what_a_program_waits_for_has_to_be_durable() {
        let dir = tempfile::tempdir().unwrap();
        let fs = file_system(dir.path());
        let caller = Caller::default();
        let sync = Access {
            sync: true,
            ..Access::WRITE
        };
        let (attr, usual) = fs
            .create(&caller, ROOT, b"file", 0o600, Access::WRITE)
            .unwrap();
        let synced = fs.open(attr.ino, sync).unwrap();
        let asking = WriteCall {
            sync: true,
            ..WriteSource::Program.into()
        };
        let write = |handle, call| fs.write(handle, 0, b"bytes", call).unwrap();
        assert_eq!(write(&usual, WriteSource::Program.into()), Finish::Now);
        assert_eq!(write(&usual, asking), Finish::AfterSync);
        assert_eq!(
            write(&synced, WriteSource::Direct.into()),
            Finish::AfterSync
        );
        assert_eq!(write(&synced, WriteSource::Cache.into()), Finish::Now);
        assert_eq!(fs.flush(&usual).unwrap(), Finish::Now);
        fs.setxattr(&caller, attr.ino, b"user.shale.durability", b"sync", 0)
            .unwrap();
        assert_eq!(
            write(&usual, WriteSource::Program.into()),
            Finish::AfterSync
        );
        assert_eq!(write(&usual, WriteSource::Cache.into()), Finish::Now);
        assert_eq!(fs.flush(&usual).unwrap(), Finish::AfterSync);
        fs.release(usual);
        fs.release(synced);
        fs.store().shut_down().unwrap();
    }
}
