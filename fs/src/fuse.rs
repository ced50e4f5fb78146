//! The FUSE wire: decodes requests, calls operations, replies.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileAttr, FileHandle, FileType, Filesystem,
    FopenFlags, Generation, INodeNo, InitFlags, KernelConfig, LockOwner, Notifier, OpenAccMode,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request,
    TimeOrNow, WriteFlags,
};
use shale_store::Asked;
use shale_store::index::schema::{S_IFMT, Time};

use crate::changes::Changes;
use crate::counters::Op;
use crate::gate::{Call, WriteGate};
use crate::handles::{Handles, InUse};
use crate::ops::lseek::Whence;
use crate::ops::setattr::SetAttr;
use crate::ops::statfs::BLOCK;
use crate::{Attr, Caller, Error, Fs, WriteSource, syncers};

/// How long the kernel may trust a name. All changes go through it, so this is only a bound.
const ENTRY_TTL: Duration = Duration::from_secs(60);
/// How long the kernel may trust attributes: stored sizes change behind its back.
const ATTR_TTL: Duration = Duration::from_secs(1);
/// Inode numbers are never reused.
const GENERATION: Generation = Generation(0);
/// Largest request, as most kernels limit it.
const MAX_WRITE: u32 = 1 << 20;
/// Requests the kernel may send ahead.
const MAX_BACKGROUND: u16 = 64;

/// A file system as fuser drives it.
pub(crate) struct Wire {
    fs: Arc<Fs>,
    handles: Arc<Handles>,
    syncers: syncers::Pool,
    changes: Changes,
    gate: Arc<WriteGate>,
    notifier: Arc<OnceLock<Notifier>>,
    /// Nothing is kept in the kernel's page cache.
    direct: bool,
    /// The kernel keeps the times of what it caches, and sends them.
    kernel_times: bool,
}

/// Threads that wait for syncs.
const SYNCERS: usize = 16;

impl Wire {
    /// The notifier can be set once there is a session. Changes of names take up at most so many
    /// threads of those that serve requests.
    pub(crate) fn new(
        fs: Arc<Fs>,
        notifier: Arc<OnceLock<Notifier>>,
        direct: bool,
        changes: usize,
    ) -> io::Result<Self> {
        Ok(Self {
            handles: Arc::new(Handles::new(Arc::clone(&fs))),
            gate: WriteGate::start(Arc::clone(&fs), Arc::clone(&notifier))?,
            fs,
            syncers: syncers::Pool::new("sync", SYNCERS)?,
            changes: Changes::new(changes)?,
            notifier,
            direct,
            kernel_times: false,
        })
    }

    fn open_flags(&self) -> FopenFlags {
        if self.direct {
            FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
        } else {
            FopenFlags::FOPEN_KEEP_CACHE
        }
    }

    fn handle(&self, handle: FileHandle) -> Result<InUse, Error> {
        self.handles.get(handle)
    }

    /// The file that a question for attributes concerns, how much is about to be written to it,
    /// and what is known of the call, if the question may come from a write into the kernel's cache
    /// for which there may be no room.
    fn asks_to_write(&self, req: &Request, fh: Option<FileHandle>) -> Option<(InUse, Asked, Call)> {
        if !self.kernel_times || !self.gate.is_closed() {
            return None;
        }
        let handle = self.handle(fh?).ok().filter(|handle| handle.writes)?;
        let call = self.gate.call_of(req.pid());
        let bytes = match call {
            Call::Read => return None,
            Call::Write(bytes) => bytes,
            Call::Other | Call::Hidden => 0,
        };
        self.gate.asked(handle.ino());
        let asked = Asked {
            thread: req.pid(),
            bytes,
        };
        let covered = self.fs.store().covers_cached(&handle.file, asked);
        (!covered).then_some((handle, asked, call))
    }

    /// Drops what the kernel's cache still shows of bytes that were refused.
    fn drop_refused(&self, ino: INodeNo, offset: u64, len: usize) {
        let (fs, notifier) = (Arc::clone(&self.fs), Arc::clone(&self.notifier));
        self.syncers.run(move || {
            if let Some(notifier) = notifier.get()
                && let Err(e) = notifier.inval_inode(ino, offset as i64, len as i64)
            {
                tracing::warn!(
                    inode = ino.0,
                    "{}: the kernel shows bytes that are lost: {e}",
                    fs.namespace().path(ino.0)
                );
            }
        });
    }

    /// Makes a change of names or attributes, which may have to wait for the device.
    fn change(&self, change: impl FnOnce(&Fs) + Send + 'static) {
        let fs = Arc::clone(&self.fs);
        self.changes.make(move || change(&fs));
    }
}

/// Runs an operation and counts it; a panic in it is an I/O error, not the end of the mount.
fn run<T>(
    fs: &Fs,
    operation: Op,
    ino: INodeNo,
    body: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Errno> {
    let begun = Instant::now();
    let result = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => {
            let errno = error.errno();
            if let Error::Store(error) = &error {
                fs.store().note_damage(error);
            }
            // The log has told of what is lost; it need not do so for each who is refused.
            let named = matches!(&error, Error::Store(error) if error.is_known());
            if errno == libc::EIO && !named {
                let path = fs.namespace().path(ino.0);
                tracing::error!(inode = ino.0, "{path}: {}: {error}", operation.name());
            }
            Err(errno)
        }
        Err(_) => {
            let path = fs.namespace().path(ino.0);
            tracing::error!(inode = ino.0, "{path}: {} panicked", operation.name());
            Err(libc::EIO)
        }
    };
    fs.counters
        .done(operation, ino.0, begun, result.as_ref().err().copied());
    result.map_err(Errno::from_i32)
}

fn may_write(flags: i32) -> bool {
    OpenFlags(flags).acc_mode() != OpenAccMode::O_RDONLY
}

/// Makes the kernel ask for attributes again. Not for threads that serve requests: it may wait for
/// one that holds the inode.
pub(crate) fn forget_attr(notifier: &OnceLock<Notifier>, ino: INodeNo) {
    if let Some(notifier) = notifier.get() {
        // A negative offset leaves cached data alone. An inode the kernel has forgotten is fine.
        let _ = notifier.inval_inode(ino, -1, 0);
    }
}

fn caller(req: &Request) -> Caller {
    Caller {
        uid: req.uid(),
        gid: req.gid(),
        pid: req.pid(),
    }
}

fn kind(mode: u32) -> FileType {
    match mode & S_IFMT {
        libc::S_IFDIR => FileType::Directory,
        libc::S_IFLNK => FileType::Symlink,
        libc::S_IFIFO => FileType::NamedPipe,
        libc::S_IFSOCK => FileType::Socket,
        libc::S_IFCHR => FileType::CharDevice,
        libc::S_IFBLK => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

fn wire_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.ino),
        size: attr.size,
        blocks: attr.blocks,
        atime: attr.atime.into(),
        mtime: attr.mtime.into(),
        ctime: attr.ctime.into(),
        crtime: attr.btime.into(),
        kind: kind(attr.mode),
        perm: (attr.mode & 0o7777) as u16,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: attr.blksize,
        flags: 0,
    }
}

/// Before the epoch, fuser adds the nanoseconds to the distance instead of subtracting them.
fn wire_system_time(time: SystemTime) -> Time {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(_) => time.into(),
        Err(before) => Time {
            secs: (before.duration().as_secs() as i64).wrapping_neg(),
            nanos: before.duration().subsec_nanos(),
        },
    }
}

fn wire_time(time: TimeOrNow) -> Time {
    match time {
        TimeOrNow::SpecificTime(time) => wire_system_time(time),
        TimeOrNow::Now => Time::now(),
    }
}

macro_rules! entry {
    ($gate:expr, $reply:expr, $result:expr) => {
        match $result {
            Ok(attr) => {
                let ttl = $gate.ttl(attr.ino, ATTR_TTL);
                $reply.entry_with_ttls(&ttl, &ENTRY_TTL, &wire_attr(&attr), GENERATION)
            }
            Err(errno) => $reply.error(errno),
        }
    };
}

macro_rules! attributes {
    ($gate:expr, $reply:expr, $result:expr) => {
        match $result {
            Ok(attr) => $reply.attr(&$gate.ttl(attr.ino, ATTR_TTL), &wire_attr(&attr)),
            Err(errno) => $reply.error(errno),
        }
    };
}

macro_rules! empty {
    ($reply:expr, $result:expr) => {
        match $result {
            Ok(()) => $reply.ok(),
            Err(errno) => $reply.error(errno),
        }
    };
}

impl Filesystem for Wire {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // All handles or none: after a direct write the kernel's write-back cache goes on
        // showing the old time of modification.
        let caching = if self.direct {
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP
        } else {
            InitFlags::FUSE_WRITEBACK_CACHE
        };
        let wanted = [
            caching,
            // Otherwise the kernel asks for security.capability before every write.
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
            InitFlags::FUSE_POSIX_ACL,
            InitFlags::FUSE_DONT_MASK,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_EXPORT_SUPPORT,
        ];
        for flag in wanted {
            if config.add_capabilities(flag).is_ok() {
                self.kernel_times |= flag == InitFlags::FUSE_WRITEBACK_CACHE;
            } else {
                tracing::warn!("this kernel's FUSE lacks {flag:?}; update it for full function");
            }
        }
        let _ = config.set_max_write(MAX_WRITE);
        if let Err(most) = config.set_max_readahead(MAX_WRITE) {
            let _ = config.set_max_readahead(most);
        }
        let _ = config.set_max_background(MAX_BACKGROUND);
        Ok(())
    }

    fn destroy(&mut self) {
        self.gate.stop();
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        entry!(
            self.gate,
            reply,
            run(&self.fs, Op::Lookup, parent, || self
                .fs
                .lookup(parent.0, name.as_bytes()))
        );
    }

    fn forget(&self, _req: &Request, ino: INodeNo, _nlookup: u64) {
        self.fs.forget(ino.0);
    }

    fn getattr(&self, req: &Request, ino: INodeNo, fh: Option<FileHandle>, reply: ReplyAttr) {
        let Some((handle, asked, call)) = self.asks_to_write(req, fh) else {
            let found = run(&self.fs, Op::Getattr, ino, || self.fs.getattr(ino.0));
            return attributes!(self.gate, reply, found);
        };
        let (fs, gate) = (Arc::clone(&self.fs), Arc::clone(&self.gate));
        self.syncers.run(move || {
            let found = run(&fs, Op::Getattr, ino, || {
                match fs.store().admit_cached(&handle.file, asked) {
                    Err(e) if gate.may_refuse(ino.0, call) => Err(e.into()),
                    _ => fs.getattr(ino.0),
                }
            });
            attributes!(gate, reply, found);
        });
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let set = SetAttr {
            mode,
            uid,
            gid,
            size,
            atime: atime.map(wire_time),
            mtime: mtime.map(wire_time),
            ctime: ctime.map(wire_system_time),
            // fuser does not pass on that the kernel asks for it; root may keep them.
            kill_privileges: req.uid() != 0,
        };
        let handle = fh.and_then(|fh| self.handle(fh).ok());
        let gate = Arc::clone(&self.gate);
        self.change(move |fs| {
            match run(fs, Op::Setattr, ino, || {
                fs.setattr(ino.0, handle.as_deref(), &set)
            }) {
                Ok(attr) => {
                    let ttl = match size {
                        Some(0) => gate.ttl_of_new(ino.0, ATTR_TTL),
                        _ => gate.ttl(ino.0, ATTR_TTL),
                    };
                    reply.attr(&ttl, &wire_attr(&attr));
                }
                Err(errno) => reply.error(errno),
            }
        });
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        match run(&self.fs, Op::Readlink, ino, || self.fs.readlink(ino.0)) {
            Ok(target) => reply.data(&target),
            Err(errno) => reply.error(errno),
        }
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let (caller, name) = (caller(req), name.as_bytes().to_vec());
        let gate = Arc::clone(&self.gate);
        self.change(move |fs| {
            let made = || fs.mknod(&caller, parent.0, &name, mode, umask, rdev);
            entry!(gate, reply, run(fs, Op::Mknod, parent, made));
        });
    }

    fn mkdir(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let (caller, name) = (caller(req), name.as_bytes().to_vec());
        let gate = Arc::clone(&self.gate);
        self.change(move |fs| {
            let made = || fs.mkdir(&caller, parent.0, &name, mode, umask);
            entry!(gate, reply, run(fs, Op::Mkdir, parent, made));
        });
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.as_bytes().to_vec();
        self.change(move |fs| {
            let removed = || fs.unlink(parent.0, &name);
            empty!(reply, run(fs, Op::Unlink, parent, removed));
        });
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.as_bytes().to_vec();
        self.change(move |fs| {
            let removed = || fs.rmdir(parent.0, &name);
            empty!(reply, run(fs, Op::Rmdir, parent, removed));
        });
    }

    fn symlink(
        &self,
        req: &Request,
        parent: INodeNo,
        link_name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let (caller, name) = (caller(req), link_name.as_bytes().to_vec());
        let target = target.as_os_str().as_bytes().to_vec();
        let gate = Arc::clone(&self.gate);
        self.change(move |fs| {
            let made = || fs.symlink(&caller, parent.0, &name, &target);
            entry!(gate, reply, run(fs, Op::Symlink, parent, made));
        });
    }

    fn rename(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (from, to) = (name.as_bytes().to_vec(), newname.as_bytes().to_vec());
        self.change(move |fs| {
            let moved = || fs.rename(parent.0, &from, newparent.0, &to, flags.bits());
            empty!(reply, run(fs, Op::Rename, parent, moved));
        });
    }

    fn link(
        &self,
        _req: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let name = newname.as_bytes().to_vec();
        let gate = Arc::clone(&self.gate);
        self.change(move |fs| {
            let linked = || fs.link(ino.0, newparent.0, &name);
            entry!(gate, reply, run(fs, Op::Link, ino, linked));
        });
    }

    fn open(&self, _req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match run(&self.fs, Op::Open, ino, || {
            self.fs.open(ino.0, may_write(flags.0))
        }) {
            Ok(handle) => {
                let writes = handle.writes;
                let number = self.handles.keep(handle);
                if writes {
                    self.gate.opening(ino.0);
                }
                reply.opened(number, self.open_flags());
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let (caller, name) = (caller(req), name.as_bytes().to_vec());
        let (handles, open_flags) = (Arc::clone(&self.handles), self.open_flags());
        let gate = Arc::clone(&self.gate);
        self.change(move |fs| {
            let made = || fs.create(&caller, parent.0, &name, mode, umask, may_write(flags));
            match run(fs, Op::Create, parent, made) {
                Ok((attr, handle)) => {
                    let handle = handles.keep(handle);
                    // There is one time for name and attributes.
                    let ttl = gate.ttl_of_new(attr.ino, ENTRY_TTL);
                    reply.created(&ttl, &wire_attr(&attr), GENERATION, handle, open_flags);
                }
                Err(errno) => reply.error(errno),
            }
        });
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        thread_local! {
            /// Fresh memory would cost a page fault every 4 KiB.
            static ANSWER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
        }
        ANSWER.with_borrow_mut(|out| {
            let done = run(&self.fs, Op::Read, ino, || {
                self.fs.read(&*self.handle(fh)?, offset, size as usize, out)
            });
            match done {
                Ok(()) => reply.data(out),
                Err(errno) => reply.error(errno),
            }
        });
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let kill = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        let from_cache = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let written = run(&self.fs, Op::Write, ino, || {
            let handle = self.handle(fh)?;
            let source = match (from_cache, self.kernel_times) {
                (false, false) => WriteSource::Program,
                (false, true) => WriteSource::Direct,
                (true, true) => WriteSource::Cache,
                (true, false) => WriteSource::Mapping,
            };
            self.fs.write(&handle, offset, data, kill, source)?;
            // Nobody waits for what the cache sends; closing the file does. Of what goes past the
            // cache the kernel leaves it to us that O_SYNC and the like ask for it.
            let asked = flags.0 & libc::O_DSYNC != 0;
            let sync = !from_cache && (asked || self.fs.wants_sync(&handle)?);
            Ok(sync.then_some(handle))
        });
        let len = data.len() as u32;
        match written {
            Ok(None) => reply.written(len),
            Ok(Some(handle)) => {
                let fs = Arc::clone(&self.fs);
                self.syncers.run(
                    move || match run(&fs, Op::Write, ino, || fs.fsync(&handle)) {
                        Ok(()) => reply.written(len),
                        Err(errno) => reply.error(errno),
                    },
                );
            }
            Err(errno) => {
                // Not before the answer: the kernel waits for it with the pages.
                reply.error(errno);
                if from_cache {
                    self.drop_refused(ino, offset, data.len());
                }
            }
        }
    }

    fn flush(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        let flushed = run(&self.fs, Op::Flush, ino, || {
            let handle = self.handle(fh)?;
            if self.fs.wants_sync(&handle)? {
                return Ok(Some(handle));
            }
            self.fs.flush(&handle).map(|()| None)
        });
        match flushed {
            Ok(None) => reply.ok(),
            Ok(Some(handle)) => {
                let fs = Arc::clone(&self.fs);
                self.syncers
                    .run(move || empty!(reply, run(&fs, Op::Flush, ino, || fs.fsync(&handle))));
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn release(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let released = run(&self.fs, Op::Release, ino, || {
            if may_write(flags.0) {
                self.fs.end_writer(ino.0);
            }
            self.handles.remove(fh);
            Ok(())
        });
        empty!(reply, released);
    }

    fn fsync(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        match self.handle(fh) {
            Ok(handle) => {
                let (fs, notifier) = (Arc::clone(&self.fs), Arc::clone(&self.notifier));
                self.syncers.run(move || {
                    let synced = run(&fs, Op::Fsync, ino, || fs.fsync(&handle));
                    // The stored size is known now; what the kernel remembers is not.
                    forget_attr(&notifier, ino);
                    empty!(reply, synced);
                });
            }
            Err(error) => reply.error(Errno::from_i32(error.errno())),
        }
    }

    fn fsyncdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        _datasync: bool,
        reply: ReplyEmpty,
    ) {
        let fs = Arc::clone(&self.fs);
        self.syncers
            .run(move || empty!(reply, run(&fs, Op::Fsyncdir, ino, || fs.fsyncdir())));
    }

    fn readdir(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed = run(&self.fs, Op::Readdir, ino, || {
            self.fs.readdir(ino.0, offset, |entry| {
                let name = OsStr::from_bytes(&entry.name);
                !reply.add(INodeNo(entry.ino), entry.cookie, kind(entry.kind), name)
            })
        });
        empty!(reply, listed);
    }

    fn readdirplus(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let mut failed = None;
        let listed = run(&self.fs, Op::Readdirplus, ino, || {
            self.fs.readdir(ino.0, offset, |entry| {
                let name = OsStr::from_bytes(&entry.name);
                // There is one time for name and attributes, and of what is being stored the
                // blocks change without a word.
                let usual = if self.fs.store().is_dirty(entry.ino) {
                    ATTR_TTL
                } else {
                    ENTRY_TTL
                };
                let ttl = self.gate.ttl(entry.ino, usual);
                match self.fs.listed_attr(entry) {
                    Ok(Some(attr)) => !reply.add(
                        INodeNo(entry.ino),
                        entry.cookie,
                        name,
                        &ttl,
                        &wire_attr(&attr),
                        GENERATION,
                    ),
                    Ok(None) => true,
                    Err(error) => {
                        failed = Some(error);
                        false
                    }
                }
            })?;
            failed.map_or(Ok(()), Err)
        });
        empty!(reply, listed);
    }

    fn statfs(&self, _req: &Request, ino: INodeNo, reply: ReplyStatfs) {
        match run(&self.fs, Op::Statfs, ino, || self.fs.statfs()) {
            Ok(stat) => reply.statfs(
                stat.blocks,
                stat.free,
                stat.available,
                stat.inodes,
                stat.inodes_free,
                BLOCK,
                shale_store::index::NAME_MAX as u32,
                BLOCK,
            ),
            Err(errno) => reply.error(errno),
        }
    }

    fn setxattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let (caller, name) = (caller(req), name.as_bytes().to_vec());
        let value = value.to_vec();
        self.change(move |fs| {
            let set = || fs.setxattr(&caller, ino.0, &name, &value, flags);
            empty!(reply, run(fs, Op::Setxattr, ino, set));
        });
    }

    fn getxattr(&self, req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let found = run(&self.fs, Op::Getxattr, ino, || {
            self.fs.getxattr(&caller(req), ino.0, name.as_bytes())
        });
        reply_xattr(reply, size, found);
    }

    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let found = run(&self.fs, Op::Listxattr, ino, || {
            let names = self.fs.listxattr(&caller(req), ino.0)?;
            Ok(names
                .iter()
                .flat_map(|name| [&name[..], b"\0"].concat())
                .collect())
        });
        reply_xattr(reply, size, found);
    }

    fn removexattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.as_bytes().to_vec();
        self.change(move |fs| {
            let removed = || fs.removexattr(ino.0, &name);
            empty!(reply, run(fs, Op::Removexattr, ino, removed));
        });
    }

    fn fallocate(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let handle = self.handle(fh);
        self.change(move |fs| {
            let done = || fs.fallocate(&*handle?, offset, length, mode);
            empty!(reply, run(fs, Op::Fallocate, ino, done));
        });
    }

    fn lseek(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let whence = match whence {
            libc::SEEK_DATA => Whence::Data,
            libc::SEEK_HOLE => Whence::Hole,
            _ => return reply.error(Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else {
            return reply.error(Errno::ENXIO);
        };
        let handle = match self.handle(fh) {
            Ok(handle) => handle,
            Err(error) => return reply.error(Errno::from_i32(error.errno())),
        };
        let fs = Arc::clone(&self.fs);
        let seek = move || match run(&fs, Op::Lseek, ino, || fs.lseek(&handle, offset, whence)) {
            Ok(offset) => reply.offset(offset as i64),
            Err(errno) => reply.error(errno),
        };
        if !self.fs.has_writers(ino.0) {
            return seek();
        }
        // The kernel may hold bytes that were never sent here, and does not write them before
        // it asks. Dropping its cache makes it.
        let (fs, notifier) = (Arc::clone(&self.fs), Arc::clone(&self.notifier));
        self.syncers.run(move || {
            if let Some(notifier) = notifier.get()
                && let Err(e) = notifier.inval_inode(ino, 0, 0)
            {
                tracing::warn!(
                    inode = ino.0,
                    "{}: the kernel keeps its cache: {e}",
                    fs.namespace().path(ino.0)
                );
            }
            seek();
        });
    }

    fn copy_file_range(
        &self,
        _req: &Request,
        ino_in: INodeNo,
        fh_in: FileHandle,
        offset_in: u64,
        _ino_out: INodeNo,
        fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let copied = run(&self.fs, Op::CopyFileRange, ino_in, || {
            let (from, to) = (self.handle(fh_in)?, self.handle(fh_out)?);
            self.fs
                .copy_file_range(&from, offset_in, &to, offset_out, len)
        });
        match copied {
            Ok(len) => reply.written(len as u32),
            Err(errno) => reply.error(errno),
        }
    }
}

fn reply_xattr(reply: ReplyXattr, size: u32, found: Result<Vec<u8>, Errno>) {
    match found {
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(value) => reply.data(&value),
        Err(errno) => reply.error(errno),
    }
}
