//! Runs operations, counts them, replies.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use fuser::{Errno, Generation, INodeNo, ReplyAttr, ReplyEmpty, ReplyEntry, ReplyXattr};

use super::coherence::Coherence;
use super::convert::file_attr;
use crate::counters::Op;
use crate::{Attr, Error, Fs};

/// Inode numbers are never reused.
pub(super) const GENERATION: Generation = Generation(0);

/// An operation between its request and its reply. It is counted once, at its end, however many
/// steps and threads it takes.
pub(super) struct Operation {
    op: Op,
    ino: INodeNo,
    begun: Instant,
}

impl Operation {
    pub(super) fn begin(op: Op, ino: INodeNo) -> Self {
        Self {
            op,
            ino,
            begun: Instant::now(),
        }
    }

    /// Runs a step. A panic in it is an I/O error, not the end of the mount.
    pub(super) fn step<T>(
        &self,
        fs: &Fs,
        body: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, i32> {
        let ino = self.ino.0;
        let name = self.op.name();
        match catch_unwind(AssertUnwindSafe(body)) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => {
                let errno = error.errno();
                if let Error::Store(error) = &error {
                    fs.store().note_damage(error);
                }
                // The log names lost data once. It does not do so for each refused request.
                let known = matches!(&error, Error::Store(error) if error.is_known());
                if errno == libc::EIO && !known {
                    tracing::error!(inode = ino, "{}: {name}: {error}", fs.path(ino));
                }
                Err(errno)
            }
            Err(_) => {
                tracing::error!(
                    inode = ino,
                    "{}: {name} panicked and fails with EIO; please report this with the log",
                    fs.path(ino)
                );
                Err(Error::Panicked.errno())
            }
        }
    }

    /// Counts the operation.
    pub(super) fn end<T>(&self, fs: &Fs, result: Result<T, i32>) -> Result<T, Errno> {
        let errno = result.as_ref().err().copied();
        fs.counters.done(self.op, self.ino.0, self.begun, errno);
        result.map_err(Errno::from_i32)
    }
}

/// Runs an operation of a single step.
pub(super) fn run<T>(
    fs: &Fs,
    op: Op,
    ino: INodeNo,
    body: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Errno> {
    let operation = Operation::begin(op, ino);
    let result = operation.step(fs, body);
    operation.end(fs, result)
}

pub(super) fn entry(coherence: &Coherence, reply: ReplyEntry, result: Result<Attr, Errno>) {
    match result {
        Ok(attr) => {
            let (attr_ttl, name_ttl) = (coherence.attr_ttl(attr.ino), coherence.name_ttl());
            reply.entry_with_ttls(&attr_ttl, &name_ttl, &file_attr(&attr), GENERATION);
        }
        Err(errno) => reply.error(errno),
    }
}

pub(super) fn attributes(coherence: &Coherence, reply: ReplyAttr, result: Result<Attr, Errno>) {
    match result {
        Ok(attr) => reply.attr(&coherence.attr_ttl(attr.ino), &file_attr(&attr)),
        Err(errno) => reply.error(errno),
    }
}

pub(super) fn empty(reply: ReplyEmpty, result: Result<(), Errno>) {
    match result {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

pub(super) fn xattr(reply: ReplyXattr, size: u32, result: Result<Vec<u8>, Errno>) {
    match result {
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(value) => reply.data(&value),
        Err(errno) => reply.error(errno),
    }
}
