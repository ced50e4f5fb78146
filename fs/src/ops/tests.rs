//! Every operation on a read-only store: the file system itself refuses changes, whatever the
//! kernel lets through.

use shale_index::ROOT;
use shale_index::schema::Time;

use crate::ops::SetAttr;
use crate::testing::{file_system, read_only_file_system};
use crate::{Access, Caller, Error, WriteSource};

#[test]
fn every_change_is_refused_and_nothing_waits() {
    let dir = tempfile::tempdir().unwrap();
    let caller = Caller::default();
    let fs = file_system(dir.path());
    let (_, handle) = fs
        .create(&caller, ROOT, b"file", 0o600, Access::WRITE)
        .unwrap();
    fs.write(&handle, 0, b"contents", WriteSource::Program.into())
        .unwrap();
    fs.fsync(&handle).unwrap();
    let file = handle.ino();
    fs.release(handle);
    let sub = fs.mkdir(&caller, ROOT, b"dir", 0o700).unwrap().ino;
    fs.setxattr(&caller, file, b"user.x", b"y", 0).unwrap();
    fs.store().shut_down().unwrap();
    drop(fs);

    let fs = read_only_file_system(dir.path());
    let handle = fs.open(file, Access::READ).unwrap();
    let size = |size| SetAttr {
        size: Some(size),
        ..SetAttr::default()
    };
    let mode = SetAttr {
        mode: Some(0o640),
        ..SetAttr::default()
    };
    let times = SetAttr {
        mtime: Some(Time::now()),
        ..SetAttr::default()
    };
    let set = |name: &[u8], value: &[u8]| fs.setxattr(&caller, file, name, value, 0);
    const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let changes: [(&str, Result<(), Error>); 26] = [
        (
            "create",
            fs.create(&caller, ROOT, b"new", 0o600, Access::WRITE)
                .map(drop),
        ),
        ("mknod", fs.mknod(&caller, ROOT, b"new", 0o600, 0).map(drop)),
        ("mkdir", fs.mkdir(&caller, ROOT, b"new", 0o700).map(drop)),
        (
            "symlink",
            fs.symlink(&caller, ROOT, b"new", b"target").map(drop),
        ),
        ("link", fs.link(file, ROOT, b"new").map(drop)),
        ("unlink", fs.unlink(ROOT, b"file")),
        ("rmdir", fs.rmdir(ROOT, b"dir")),
        ("rename", fs.rename(ROOT, b"file", sub, b"new", 0)),
        ("open to write", fs.open(file, Access::WRITE).map(drop)),
        (
            "write",
            fs.write(&handle, 0, b"other", WriteSource::Program.into())
                .map(drop),
        ),
        (
            "write back",
            fs.write(&handle, 0, b"other", WriteSource::Cache.into())
                .map(drop),
        ),
        (
            "copy",
            fs.copy_file_range(&handle, 0, &handle, 100, 8).map(drop),
        ),
        ("allocate", fs.fallocate(&handle, 0, 100, 0)),
        ("punch", fs.fallocate(&handle, 0, 100, PUNCH)),
        ("truncate", fs.setattr(file, None, &size(0)).map(drop)),
        (
            "extend",
            fs.setattr(file, Some(&handle), &size(99)).map(drop),
        ),
        ("chmod", fs.setattr(file, None, &mode).map(drop)),
        (
            "chmod open",
            fs.setattr(file, Some(&handle), &mode).map(drop),
        ),
        ("utimes", fs.setattr(sub, None, &times).map(drop)),
        ("setxattr", set(b"user.x", b"z")),
        ("removexattr", fs.removexattr(file, b"user.x")),
        ("policy", set(b"user.shale.codec", b"none")),
        ("no policy", set(b"user.shale.codec", b"nonsense")),
        ("settle", set(b"user.shale.settle.now", b"1")),
        ("gc", set(b"user.shale.gc.now", b"50")),
        ("remove policy", fs.removexattr(file, b"user.shale.codec")),
    ];
    for (what, result) in changes {
        let errno = result.map_err(|e| e.errno());
        assert_eq!(errno, Err(libc::EROFS), "{what}");
    }
    fs.fsync(&handle).unwrap();
    fs.fsyncdir().unwrap();
    fs.store().sync_all().unwrap();
    fs.flush(&handle).unwrap();
    let mut out = Vec::new();
    fs.read(&handle, 0, 100, &mut out).unwrap();
    assert_eq!(out, b"contents");
    fs.release(handle);
    fs.statfs().unwrap();
    assert_eq!(fs.getattr(file).unwrap().size, 8);
    assert_eq!(fs.getxattr(&caller, file, b"user.x").unwrap(), b"y");
    let state = fs.getxattr(&caller, file, b"user.shale.stat.state");
    assert_eq!(state.unwrap(), b"stored");
    fs.store().shut_down().unwrap();
}

/// Only the first write to an open file asks the index whether it has capabilities.
#[test]
fn a_write_takes_capabilities_away_also_when_they_are_set_later() {
    let dir = tempfile::tempdir().unwrap();
    let caller = Caller::default();
    let fs = file_system(dir.path());
    let (attr, handle) = fs
        .create(&caller, ROOT, b"file", 0o700, Access::WRITE)
        .unwrap();
    let capability = b"security.capability";
    for _ in 0..2 {
        fs.setxattr(&caller, attr.ino, capability, b"some", 0)
            .unwrap();
        assert!(!handle.file.is_unprivileged());
        fs.write(&handle, 0, b"x", WriteSource::Direct.into())
            .unwrap();
        assert!(handle.file.is_unprivileged());
        assert!(fs.getxattr(&caller, attr.ino, capability).is_err());
    }
    fs.release(handle);
    fs.store().shut_down().unwrap();
}
