//! What the kernel may cache of a mount, and how its caches are invalidated.
//!
//! single-node: every change of names, attributes and contents goes through this process, so the
//! kernel's caches are never behind the file system. With several nodes, the times and the cache
//! mode below depend on who else uses a file.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use fuser::{FopenFlags, INodeNo, InitFlags, Notifier, WriteFlags};
use shale_index::Ino;

use super::admission::{Question, WriteGate};
use super::handles::HandleRef;
use crate::{Fs, WriteSource};

/// How long the kernel may trust a name.
// single-node: a bound only, since the kernel sees every change of names.
const NAME_TTL: Duration = Duration::from_secs(60);
/// How long the kernel may trust attributes. Stored sizes change without a request.
const ATTR_TTL: Duration = Duration::from_secs(1);

/// The kernel's caches of one mount. The session connects them once it exists.
///
/// Invalidation waits for requests that hold the inode, so threads that serve requests must not
/// call it.
#[derive(Default)]
pub(super) struct KernelCaches {
    notifier: OnceLock<Notifier>,
}

impl KernelCaches {
    pub(super) fn connect(&self, notifier: Notifier) {
        let _ = self.notifier.set(notifier);
    }

    /// Makes the kernel ask for attributes again.
    pub(super) fn forget_attributes(&self, ino: Ino) {
        // A negative offset leaves cached data alone. The kernel may have forgotten the inode.
        let _ = self.invalidate(ino, -1, 0);
    }

    /// Makes the kernel write back and drop all cached data of a file.
    pub(super) fn drop_data(&self, ino: Ino) -> io::Result<()> {
        self.invalidate(ino, 0, 0)
    }

    /// The same for a range.
    fn drop_range(&self, ino: Ino, offset: u64, len: usize) -> io::Result<()> {
        self.invalidate(ino, offset as i64, len as i64)
    }

    fn invalidate(&self, ino: Ino, offset: i64, len: i64) -> io::Result<()> {
        match self.notifier.get() {
            Some(notifier) => notifier.inval_inode(INodeNo(ino), offset, len),
            None => Ok(()),
        }
    }
}

/// Times, cache mode and invalidation of one mount.
pub(super) struct Coherence {
    fs: Arc<Fs>,
    caches: Arc<KernelCaches>,
    gate: Arc<WriteGate>,
    /// Nothing is kept in the kernel's page cache.
    direct: bool,
    /// The kernel has a write-back cache. It keeps the times of what it caches, and sends them.
    write_back: AtomicBool,
}

impl Coherence {
    pub(super) fn new(fs: Arc<Fs>, caches: Arc<KernelCaches>, direct: bool) -> io::Result<Self> {
        Ok(Self {
            gate: WriteGate::start(Arc::clone(&fs), Arc::clone(&caches))?,
            fs,
            caches,
            direct,
            write_back: AtomicBool::new(false),
        })
    }

    /// The session ends.
    pub(super) fn stop(&self) {
        self.gate.stop();
    }

    /// The cache mode to request from the kernel. All handles or none: after a direct write the
    /// write-back cache keeps showing the old time of modification.
    pub(super) fn cache_mode(&self) -> InitFlags {
        if self.direct {
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP
        } else {
            InitFlags::FUSE_WRITEBACK_CACHE
        }
    }

    /// The kernel has a capability that it was asked for.
    pub(super) fn granted(&self, flag: InitFlags) {
        if flag == InitFlags::FUSE_WRITEBACK_CACHE {
            self.write_back.store(true, Ordering::Relaxed);
        }
    }

    fn has_write_back(&self) -> bool {
        self.write_back.load(Ordering::Relaxed)
    }

    pub(super) fn open_flags(&self) -> FopenFlags {
        if self.direct {
            FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
        } else {
            // single-node: data cached by another open is still valid.
            FopenFlags::FOPEN_KEEP_CACHE
        }
    }

    /// Where the bytes of a write come from.
    pub(super) fn source(&self, flags: WriteFlags) -> WriteSource {
        let cached = flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        match (cached, self.has_write_back()) {
            (false, false) => WriteSource::Program,
            (false, true) => WriteSource::Direct,
            (true, true) => WriteSource::Cache,
            (true, false) => WriteSource::Mapping,
        }
    }

    /// How long a name is valid.
    pub(super) fn name_ttl(&self) -> Duration {
        NAME_TTL
    }

    /// How long the attributes of an inode are valid.
    pub(super) fn attr_ttl(&self, ino: Ino) -> Duration {
        self.gate.ttl(ino, ATTR_TTL)
    }

    /// The same after a change of attributes, perhaps of the size.
    pub(super) fn attr_ttl_after(&self, ino: Ino, size: Option<u64>) -> Duration {
        match size {
            Some(0) => self.gate.ttl_of_new(ino, ATTR_TTL),
            _ => self.attr_ttl(ino),
        }
    }

    /// How long name and attributes of a new file are valid: the reply has one time for both.
    pub(super) fn created_ttl(&self, ino: Ino) -> Duration {
        self.gate.ttl_of_new(ino, NAME_TTL)
    }

    /// The same for an entry of a listing. The blocks of a file that is being stored change
    /// without a request.
    pub(super) fn listed_ttl(&self, ino: Ino) -> Duration {
        let usual = if self.fs.store().is_dirty(ino) {
            ATTR_TTL
        } else {
            NAME_TTL
        };
        self.gate.ttl(ino, usual)
    }

    /// A file was opened for writing.
    pub(super) fn opened_for_writing(&self, ino: Ino) {
        self.gate.opening(ino);
    }

    /// Whether a request for attributes may precede a write into the kernel's cache for which
    /// there may be no room.
    pub(super) fn is_asked_before_writes(&self) -> bool {
        self.has_write_back() && self.gate.is_closed()
    }

    /// The question that such a request stands for, if there may be no room.
    pub(super) fn question(&self, handle: HandleRef, thread: u32) -> Option<Question> {
        self.gate.question(handle, thread)
    }

    /// Waits for the room that a question asks for.
    ///
    /// # Errors
    /// There is none, and the write must fail.
    pub(super) fn admit(&self, question: &Question) -> Result<(), crate::Error> {
        self.gate.admit(question)
    }

    /// The stored size is known now, which the kernel cannot know.
    pub(super) fn stored(&self, ino: Ino) {
        self.caches.forget_attributes(ino);
    }

    /// Makes the kernel send its cached data of a file, by dropping its cache.
    pub(super) fn pull(&self, ino: Ino) {
        if let Err(e) = self.caches.drop_data(ino) {
            tracing::warn!(
                inode = ino,
                "{}: the kernel did not write back its cached data, so holes may be reported where \
                 there is data: {e}; call fsync before looking for holes",
                self.fs.path(ino)
            );
        }
    }

    /// Drops refused bytes that the kernel's cache still shows.
    pub(super) fn drop_refused(&self, ino: Ino, offset: u64, len: usize) {
        if let Err(e) = self.caches.drop_range(ino, offset, len) {
            tracing::warn!(
                inode = ino,
                "{}: the kernel still shows {len} bytes at offset {offset} that could not be \
                 stored: {e}; write them again, or drop the page cache before reading the file",
                self.fs.path(ino)
            );
        }
    }
}
