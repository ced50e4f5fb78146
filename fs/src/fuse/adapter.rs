//! One method for each FUSE request: decodes it, calls the operation, replies.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use shale_store::Seek;

use super::coherence::{Coherence, KernelCaches};
use super::convert::{
    access, asks_for_sync, caller, creator, file_attr, file_type, system_time, time,
};
use super::handles::{HandleRef, Handles};
use super::reply::{GENERATION, Operation, attributes, empty, entry, run, xattr};
use super::threads::{ChangeThreads, ThreadPool};
use crate::counters::Op;
use crate::ops::{BLOCK, SetAttr};
use crate::{Attr, Error, Finish, Fs, WriteCall};

/// Largest request, as most kernels limit it.
const MAX_WRITE: u32 = 1 << 20;
/// Requests the kernel may send ahead.
const MAX_BACKGROUND: u16 = 64;
/// Threads that wait for syncs.
const SYNCERS: usize = 16;

/// A file system as fuser drives it.
pub(super) struct Adapter {
    fs: Arc<Fs>,
    handles: Arc<Handles>,
    syncers: ThreadPool,
    changes: ChangeThreads,
    coherence: Arc<Coherence>,
}

impl Adapter {
    /// `direct` bypasses the kernel's page cache. Changes of names take up at most `changes` of the
    /// threads that serve requests.
    pub(super) fn new(
        fs: Arc<Fs>,
        caches: Arc<KernelCaches>,
        direct: bool,
        changes: usize,
    ) -> io::Result<Self> {
        let coherence = Coherence::new(Arc::clone(&fs), caches, direct)?;
        Ok(Self {
            handles: Arc::new(Handles::new(Arc::clone(&fs))),
            fs,
            syncers: ThreadPool::new("sync", SYNCERS)?,
            changes: ChangeThreads::new(changes)?,
            coherence: Arc::new(coherence),
        })
    }

    fn handle(&self, handle: FileHandle) -> Result<HandleRef, Error> {
        self.handles.get(handle)
    }

    /// Makes a change of names or attributes, which may have to wait for the device.
    fn change(&self, change: impl FnOnce(&Fs) + Send + 'static) {
        let fs = Arc::clone(&self.fs);
        self.changes.run(move || change(&fs));
    }

    /// Makes a change that gives an inode a name, and replies with its entry.
    fn answer_entry(
        &self,
        op: Op,
        ino: INodeNo,
        reply: ReplyEntry,
        named: impl FnOnce(&Fs) -> Result<Attr, Error> + Send + 'static,
    ) {
        let coherence = Arc::clone(&self.coherence);
        self.change(move |fs| entry(&coherence, reply, run(fs, op, ino, || named(fs))));
    }

    /// Runs an operation on an open file and replies when the file system says that it may
    /// return: now, or after a sync in a thread that may wait.
    fn finish<T: Send + 'static>(
        &self,
        op: Op,
        ino: INodeNo,
        body: impl FnOnce() -> Result<(T, HandleRef, Finish), Error>,
        reply: impl FnOnce(Result<T, Errno>) + Send + 'static,
    ) {
        let operation = Operation::begin(op, ino);
        match operation.step(&self.fs, body) {
            Ok((value, handle, Finish::AfterSync)) => {
                let fs = Arc::clone(&self.fs);
                self.syncers.run(move || {
                    let synced = operation.step(&fs, || fs.fsync(&handle));
                    reply(operation.end(&fs, synced.map(|()| value)));
                });
            }
            done => reply(operation.end(&self.fs, done.map(|(value, ..)| value))),
        }
    }
}

impl Filesystem for Adapter {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = [
            self.coherence.cache_mode(),
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
                self.coherence.granted(flag);
            } else {
                tracing::warn!(
                    "this kernel's FUSE lacks {flag:?}; update the kernel to use all features"
                );
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
        self.coherence.stop();
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = run(&self.fs, Op::Lookup, parent, || {
            self.fs.lookup(parent.0, name.as_bytes())
        });
        entry(&self.coherence, reply, found);
    }

    fn forget(&self, _req: &Request, ino: INodeNo, _nlookup: u64) {
        self.fs.forget(ino.0);
    }

    fn getattr(&self, req: &Request, ino: INodeNo, fh: Option<FileHandle>, reply: ReplyAttr) {
        let question = fh
            .filter(|_| self.coherence.is_asked_before_writes())
            .and_then(|fh| self.handle(fh).ok())
            .and_then(|handle| self.coherence.question(handle, req.pid()));
        let Some(question) = question else {
            let found = run(&self.fs, Op::Getattr, ino, || self.fs.getattr(ino.0));
            return attributes(&self.coherence, reply, found);
        };
        let (fs, coherence) = (Arc::clone(&self.fs), Arc::clone(&self.coherence));
        self.syncers.run(move || {
            let found = run(&fs, Op::Getattr, ino, || {
                coherence.admit(&question)?;
                fs.getattr(ino.0)
            });
            attributes(&coherence, reply, found);
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
            atime: atime.map(time),
            mtime: mtime.map(time),
            ctime: ctime.map(system_time),
            // fuser does not pass on that the kernel asks for it; root may keep them.
            kill_privileges: req.uid() != 0,
        };
        let handle = fh.and_then(|fh| self.handle(fh).ok());
        let coherence = Arc::clone(&self.coherence);
        self.change(move |fs| {
            match run(fs, Op::Setattr, ino, || {
                fs.setattr(ino.0, handle.as_deref(), &set)
            }) {
                Ok(attr) => {
                    let ttl = coherence.attr_ttl_after(ino.0, size);
                    reply.attr(&ttl, &file_attr(&attr));
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
        let (caller, name) = (creator(req, umask), name.as_bytes().to_vec());
        self.answer_entry(Op::Mknod, parent, reply, move |fs| {
            fs.mknod(&caller, parent.0, &name, mode, rdev)
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
        let (caller, name) = (creator(req, umask), name.as_bytes().to_vec());
        self.answer_entry(Op::Mkdir, parent, reply, move |fs| {
            fs.mkdir(&caller, parent.0, &name, mode)
        });
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.as_bytes().to_vec();
        self.change(move |fs| {
            let removed = || fs.unlink(parent.0, &name);
            empty(reply, run(fs, Op::Unlink, parent, removed));
        });
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.as_bytes().to_vec();
        self.change(move |fs| {
            let removed = || fs.rmdir(parent.0, &name);
            empty(reply, run(fs, Op::Rmdir, parent, removed));
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
        self.answer_entry(Op::Symlink, parent, reply, move |fs| {
            fs.symlink(&caller, parent.0, &name, &target)
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
            empty(reply, run(fs, Op::Rename, parent, moved));
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
        self.answer_entry(Op::Link, ino, reply, move |fs| {
            fs.link(ino.0, newparent.0, &name)
        });
    }

    fn open(&self, _req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let opened = run(&self.fs, Op::Open, ino, || {
            self.fs.open(ino.0, access(flags.0))
        });
        match opened {
            Ok(handle) => {
                let writes = handle.access.writes;
                let number = self.handles.keep(handle);
                if writes {
                    self.coherence.opened_for_writing(ino.0);
                }
                reply.opened(number, self.coherence.open_flags());
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
        let (caller, name) = (creator(req, umask), name.as_bytes().to_vec());
        let handles = Arc::clone(&self.handles);
        let coherence = Arc::clone(&self.coherence);
        self.change(move |fs| {
            let made = || fs.create(&caller, parent.0, &name, mode, access(flags));
            match run(fs, Op::Create, parent, made) {
                Ok((attr, handle)) => {
                    let handle = handles.keep(handle);
                    let ttl = coherence.created_ttl(attr.ino);
                    let flags = coherence.open_flags();
                    reply.created(&ttl, &file_attr(&attr), GENERATION, handle, flags);
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
        let call = WriteCall {
            source: self.coherence.source(write_flags),
            sync: asks_for_sync(flags.0),
            kill_privileges: write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID),
        };
        let written = || {
            let handle = self.handle(fh)?;
            let finish = self.fs.write(&handle, offset, data, call)?;
            Ok(((), handle, finish))
        };
        let len = data.len();
        let refused = call.source.is_cached().then(|| {
            let (coherence, syncers) = (Arc::clone(&self.coherence), self.syncers.clone());
            move || syncers.run(move || coherence.drop_refused(ino.0, offset, len))
        });
        self.finish(Op::Write, ino, written, move |result| match result {
            Ok(()) => reply.written(len as u32),
            Err(errno) => {
                // The reply goes first: the kernel waits for it with the pages locked.
                reply.error(errno);
                if let Some(refused) = refused {
                    refused();
                }
            }
        });
    }

    fn flush(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        let flushed = || {
            let handle = self.handle(fh)?;
            let finish = self.fs.flush(&handle)?;
            Ok(((), handle, finish))
        };
        self.finish(Op::Flush, ino, flushed, |result| empty(reply, result));
    }

    fn release(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let released = run(&self.fs, Op::Release, ino, || {
            self.handles.remove(fh);
            Ok(())
        });
        empty(reply, released);
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
                let (fs, coherence) = (Arc::clone(&self.fs), Arc::clone(&self.coherence));
                self.syncers.run(move || {
                    let synced = run(&fs, Op::Fsync, ino, || fs.fsync(&handle));
                    coherence.stored(ino.0);
                    empty(reply, synced);
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
            .run(move || empty(reply, run(&fs, Op::Fsyncdir, ino, || fs.fsyncdir())));
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
                !reply.add(
                    INodeNo(entry.ino),
                    entry.cookie,
                    file_type(entry.kind),
                    name,
                )
            })
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn readdirplus(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let listed = run(&self.fs, Op::Readdirplus, ino, || {
            self.fs.readdir_plus(ino.0, offset, |entry, attr| {
                let name = OsStr::from_bytes(&entry.name);
                let ttl = self.coherence.listed_ttl(entry.ino);
                !reply.add(
                    INodeNo(entry.ino),
                    entry.cookie,
                    name,
                    &ttl,
                    &file_attr(attr),
                    GENERATION,
                )
            })
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
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
                shale_index::NAME_MAX as u32,
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
            empty(reply, run(fs, Op::Setxattr, ino, set));
        });
    }

    fn getxattr(&self, req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let found = run(&self.fs, Op::Getxattr, ino, || {
            self.fs.getxattr(&caller(req), ino.0, name.as_bytes())
        });
        xattr(reply, size, found);
    }

    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let found = run(&self.fs, Op::Listxattr, ino, || {
            let names = self.fs.listxattr(&caller(req), ino.0)?;
            Ok(names
                .iter()
                .flat_map(|name| [&name[..], b"\0"].concat())
                .collect())
        });
        xattr(reply, size, found);
    }

    fn removexattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.as_bytes().to_vec();
        self.change(move |fs| {
            let removed = || fs.removexattr(ino.0, &name);
            empty(reply, run(fs, Op::Removexattr, ino, removed));
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
            empty(reply, run(fs, Op::Fallocate, ino, done));
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
        let what = match whence {
            libc::SEEK_DATA => Seek::Data,
            libc::SEEK_HOLE => Seek::Hole,
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
        let seek = move || match run(&fs, Op::Lseek, ino, || fs.lseek(&handle, offset, what)) {
            Ok(offset) => reply.offset(offset as i64),
            Err(errno) => reply.error(errno),
        };
        if !self.fs.has_writers(ino.0) {
            return seek();
        }
        // The kernel may hold bytes that it has not sent, and sends none before it asks.
        let coherence = Arc::clone(&self.coherence);
        self.syncers.run(move || {
            coherence.pull(ino.0);
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
        let copied = || {
            let (from, to) = (self.handle(fh_in)?, self.handle(fh_out)?);
            let (copied, finish) = self
                .fs
                .copy_file_range(&from, offset_in, &to, offset_out, len)?;
            Ok((copied, to, finish))
        };
        self.finish(Op::CopyFileRange, ino_in, copied, |result| match result {
            Ok(copied) => reply.written(copied as u32),
            Err(errno) => reply.error(errno),
        });
    }
}
