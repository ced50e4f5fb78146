//! Conversions between types of the wire and those of the file system.

use std::time::SystemTime;

use fuser::{FileAttr, FileType, INodeNo, OpenAccMode, OpenFlags, Request, TimeOrNow};
use shale_index::schema::{S_IFMT, Time};

use crate::{Access, Attr, Caller};

pub(super) fn caller(req: &Request) -> Caller {
    Caller {
        uid: req.uid(),
        gid: req.gid(),
        pid: req.pid(),
        umask: 0,
    }
}

/// Who makes a request to create something.
pub(super) fn creator(req: &Request, umask: u32) -> Caller {
    Caller {
        umask,
        ..caller(req)
    }
}

/// What the flags of `open(2)` ask for.
pub(super) fn access(flags: i32) -> Access {
    Access {
        writes: OpenFlags(flags).acc_mode() != OpenAccMode::O_RDONLY,
        sync: asks_for_sync(flags),
    }
}

/// Whether flags contain `O_SYNC` or `O_DSYNC`. The kernel adds the latter to a write with
/// `RWF_DSYNC` and to every write in a mount with `sync`.
pub(super) fn asks_for_sync(flags: i32) -> bool {
    flags & libc::O_DSYNC != 0
}

pub(super) fn file_type(mode: u32) -> FileType {
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

pub(super) fn file_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.ino),
        size: attr.size,
        blocks: attr.blocks,
        atime: attr.atime.into(),
        mtime: attr.mtime.into(),
        ctime: attr.ctime.into(),
        crtime: attr.btime.into(),
        kind: file_type(attr.mode),
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
pub(super) fn system_time(time: SystemTime) -> Time {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(_) => time.into(),
        Err(before) => Time {
            secs: (before.duration().as_secs() as i64).wrapping_neg(),
            nanos: before.duration().subsec_nanos(),
        },
    }
}

pub(super) fn time(time: TimeOrNow) -> Time {
    match time {
        TimeOrNow::SpecificTime(time) => system_time(time),
        TimeOrNow::Now => Time::now(),
    }
}
