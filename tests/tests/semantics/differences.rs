//! Differences from ext4.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::libc;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, RenameFlags, StatxFlags, fallocate as allocate, statx,
};
use rustix::io::Errno;
use shale_tests::{Case, Cmd, LoopFs, Mount, Outcome, Rng, ensure, ensure_eq, script, shale};

pub(crate) fn tmpfile(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &[])?;
    let opened = OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_TMPFILE)
        .open(mount.path());
    let errno = opened.err().and_then(|error| error.raw_os_error());
    ensure_eq!(errno, Some(libc::EOPNOTSUPP), "errno");
    mount.unmount()
}

pub(crate) fn birth_time(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &[])?;
    File::create(mount.path().join("file"))?;
    let found = statx(
        CWD,
        mount.path().join("file"),
        AtFlags::empty(),
        StatxFlags::BASIC_STATS | StatxFlags::BTIME,
    )?;
    let mask = StatxFlags::from_bits_retain(found.stx_mask);
    ensure!(!mask.contains(StatxFlags::BTIME), "a birth time is shown");
    ensure!(mask.contains(StatxFlags::BASIC_STATS), "the rest is not");
    mount.unmount()
}

pub(crate) fn access_time(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &["-o", "atime"])?;
    let path = mount.path().join("file");
    fs::write(&path, b"x")?;
    let long_ago = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
    let times = fs::FileTimes::new().set_accessed(long_ago);
    OpenOptions::new()
        .write(true)
        .open(&path)?
        .set_times(times)?;
    ensure_eq!(fs::metadata(&path)?.accessed()?, long_ago, "as set");
    ensure_eq!(fs::read(&path)?, b"x", "contents");
    ensure_eq!(fs::metadata(&path)?.accessed()?, long_ago, "after a read");
    mount.unmount()
}

pub(crate) fn whiteout(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &[])?;
    let (from, to) = (mount.path().join("from"), mount.path().join("to"));
    fs::write(&from, b"x")?;
    let renamed = rustix::fs::renameat_with(CWD, &from, CWD, &to, RenameFlags::WHITEOUT);
    ensure_eq!(renamed.err(), Some(Errno::INVAL), "errno");
    ensure!(from.exists() && !to.exists(), "it was renamed all the same");
    mount.unmount()
}

pub(crate) fn directory_size(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &[])?;
    fs::write(mount.path().join("file"), b"x")?;
    ensure_eq!(fs::metadata(mount.path())?.len(), 0, "size");
    mount.unmount()
}

pub(crate) fn fallocate(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &[])?;
    let file = File::create(mount.path().join("file"))?;
    allocate(&file, FallocateFlags::empty(), 0, 5 << 20)?;
    let metadata = file.metadata()?;
    ensure_eq!(metadata.len(), 5 << 20, "length");
    file.sync_all()?;
    let blocks = file.metadata()?.blocks();
    ensure!(blocks * 512 < 1 << 20, "{blocks} blocks are reserved");
    let much = allocate(&file, FallocateFlags::empty(), 0, 1 << 60);
    ensure_eq!(much.err(), Some(Errno::NOSPC), "an exbibyte");
    ensure_eq!(file.metadata()?.len(), 5 << 20, "length after a refusal");
    drop(file);
    mount.unmount()
}

pub(crate) fn overwriting(case: &Case) -> Outcome {
    const MIB: u64 = 1 << 20;
    let device = case.loop_fs("device", LoopFs::Ext4, 100 * MIB)?;
    let mut mount = Mount::new(device.path().join("store"), case.work().join("fs"), &[])?;
    let file = File::create(mount.path().join("file"))?;
    let mut rng = Rng::new(2);
    let mut size = 0;
    let full = |e: &std::io::Error| e.raw_os_error() == Some(libc::ENOSPC);
    loop {
        match file.write_all_at(&rng.bytes(MIB as usize), size) {
            Ok(()) => size += MIB,
            Err(e) if full(&e) => break,
            Err(e) => return Err(e.into()),
        }
    }
    file.sync_all()?;
    let mut overwrite = |most: u64| -> Outcome<u64> {
        for at in 0..most {
            match file.write_all_at(&rng.bytes(MIB as usize), at * MIB) {
                Ok(()) => {}
                Err(e) if full(&e) => return Ok(at),
                Err(e) => return Err(e.into()),
            }
        }
        Ok(most)
    };
    let most = size / MIB;
    ensure!(overwrite(most)? < most, "all of it could be overwritten");
    file.set_len(size / 2)?;
    ensure_eq!(overwrite(most / 4)?, most / 4, "MiB after half was cut off");
    drop(file);
    mount.unmount()
}

pub(crate) fn move_ranges(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &[])?;
    let file = File::create(mount.path().join("file"))?;
    file.write_all_at(&Rng::new(1).bytes(1 << 20), 0)?;
    for flags in [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE] {
        let moved = allocate(&file, flags, 4096, 4096);
        ensure_eq!(moved.err(), Some(Errno::OPNOTSUPP), "{flags:?}");
    }
    ensure_eq!(file.metadata()?.len(), 1 << 20, "length");
    drop(file);
    mount.unmount()
}

pub(crate) fn clone(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &[])?;
    let (from, to) = (mount.path().join("from"), mount.path().join("to"));
    let bytes = Rng::new(1).bytes(3 << 20);
    fs::write(&from, &bytes)?;
    let source = File::open(&from)?;
    let target = File::create(&to)?;
    let cloned = rustix::fs::ioctl_ficlone(&target, &source);
    ensure_eq!(cloned.err(), Some(Errno::OPNOTSUPP), "FICLONE");
    let mut copied = 0;
    while copied < bytes.len() {
        let count = rustix::fs::copy_file_range(&source, None, &target, None, bytes.len())?;
        ensure!(count > 0, "copy_file_range stopped at {copied}");
        copied += count;
    }
    ensure!(fs::read(&to)? == bytes, "the copy differs");
    drop((source, target));
    mount.unmount()
}

fn figure(path: &Path, name: &str) -> Outcome<u64> {
    let mut value = [0; 64];
    let length = rustix::fs::getxattr(path, format!("user.shale.stat.{name}"), &mut value)?;
    Ok(std::str::from_utf8(&value[..length])?.parse()?)
}

pub(crate) fn blocks(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &[])?;
    let path = mount.path().join("file");
    let file = File::create(&path)?;
    let smooth: Vec<u8> = (0..1_000_000u32).flat_map(u32::to_le_bytes).collect();
    file.write_all_at(&smooth, 0)?;
    file.sync_all()?;
    drop(file);
    shale().args(["settle", "--wait"]).arg(&path).ok()?;
    let stored = figure(&path, "stored")?;
    // The kernel keeps attributes for a moment.
    let deadline = Instant::now() + Duration::from_secs(30);
    while fs::metadata(&path)?.blocks() != stored.div_ceil(512) {
        ensure!(
            Instant::now() < deadline,
            "not the blocks of {stored} stored bytes"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    ensure!(
        stored < smooth.len() as u64 / 4,
        "{stored} bytes are stored"
    );
    ensure_eq!(fs::metadata(&path)?.len(), smooth.len() as u64, "length");

    // Also of a file that was listed before it was stored.
    let listed = mount.path().join("listed");
    fs::write(&listed, &smooth)?;
    Cmd::new("ls").arg("-l").arg(mount.path()).ok()?;
    let begun = Instant::now();
    while fs::metadata(&listed)?.blocks() != figure(&listed, "stored")?.div_ceil(512) {
        ensure!(
            begun.elapsed() < Duration::from_secs(20),
            "the blocks are those from before it was stored"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    mount.unmount()
}

pub(crate) fn block_size(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &[])?;
    File::create(mount.path().join("file"))?;
    ensure_eq!(
        fs::metadata(mount.path().join("file"))?.blksize(),
        1 << 20,
        "by default"
    );
    mount.unmount()?;
    let mut mount = case.mount("small", &["--chunk", "64K"])?;
    File::create(mount.path().join("file"))?;
    ensure_eq!(
        fs::metadata(mount.path().join("file"))?.blksize(),
        64 << 10,
        "as asked"
    );
    mount.unmount()
}

pub(crate) fn inodes(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &[])?;
    let found = nix::sys::statvfs::statvfs(mount.path())?;
    let below = nix::sys::statvfs::statvfs(mount.store())?;
    let bytes = below.blocks_available() * below.fragment_size();
    ensure!(found.files_free() > 0, "no free inodes");
    ensure!(found.files_free() <= bytes, "more inodes than bytes");
    mount.unmount()
}

pub(crate) fn locks(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &[])?;
    let path = mount.path().join("file");
    let file = File::create(&path)?;
    let try_flock = || Cmd::new("flock").args(["-n"]).arg(&path).arg("true").run();
    let script =
        "import fcntl, sys\nfcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)";
    let try_fcntl = || Cmd::new("python3").args(["-c", script]).arg(&path).run();
    ensure!(try_flock()?.status.success(), "flock of a free file");
    ensure!(try_fcntl()?.status.success(), "fcntl on a free file");
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)?;
    ensure!(!try_flock()?.status.success(), "flock of a locked file");
    rustix::fs::flock(&file, rustix::fs::FlockOperation::Unlock)?;
    rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::LockExclusive)?;
    ensure!(!try_fcntl()?.status.success(), "fcntl on a locked file");
    drop(file);
    ensure!(
        try_fcntl()?.status.success(),
        "fcntl after the other has closed"
    );
    mount.unmount()
}

pub(crate) fn handles(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &[])?;
    let path = mount.path().join("file");
    fs::write(&path, b"contents")?;
    let seen = Cmd::new("python3")
        .arg(script("handles.py"))
        .arg(&path)
        .ok()?;
    ensure_eq!(seen, "contents\n", "read by handle");
    mount.unmount()
}

pub(crate) fn several_names(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &[])?;
    let top = mount.path().to_owned();
    let (first, second) = (top.join("first"), top.join("second"));
    fs::create_dir(&first)?;
    fs::create_dir(&second)?;
    fs::write(first.join("file"), b"x")?;
    fs::hard_link(first.join("file"), second.join("file"))?;
    let counts = || -> Outcome<[u64; 3]> {
        Ok([
            figure(&top, "files")?,
            figure(&first, "files")?,
            figure(&second, "files")?,
        ])
    };
    ensure_eq!(counts()?, [1, 1, 0], "where it was created");
    fs::remove_file(first.join("file"))?;
    ensure_eq!(counts()?, [1, 0, 0], "at the top");
    fs::remove_file(second.join("file"))?;
    ensure_eq!(counts()?, [0, 0, 0], "gone");
    mount.unmount()
}
