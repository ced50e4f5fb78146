//! Several processes, many handles, little memory.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use rustix::fs::{FlockOperation, flock};
use shale_tests::{Case, Cmd, Context, Outcome, Rng, ensure, ensure_eq, note, python, script};

/// Runs a test that is written in Python and checks itself.
fn in_python(test: &str, path: &std::path::Path) -> Outcome {
    let output = Cmd::new(python())
        .arg(script("sharing.py"))
        .arg(test)
        .arg(path)
        .ok()?;
    ensure!(
        output.trim_end().ends_with("checked"),
        "{test} ended early: {output}"
    );
    Ok(())
}

pub(crate) fn shared_mapping(case: &Case) -> Outcome {
    let mut fs = case.fs()?;
    in_python("mapping", &fs.at("mapped"))?;
    let before = fs::read(fs.at("mapped"))?;
    fs.refresh()?;
    ensure!(
        fs::read(fs.at("mapped"))? == before,
        "mapped writes are gone after a remount"
    );
    fs.finish()
}

pub(crate) fn flock_excludes(case: &Case) -> Outcome {
    let fs = case.fs()?;
    let path = fs.at("locked");
    let file = File::create(&path)?;
    let other = |kind: &str| -> Outcome<Option<i32>> {
        Ok(Cmd::new("flock")
            .args(["--nonblock", kind])
            .arg(&path)
            .arg("true")
            .run()?
            .status
            .code())
    };
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    ensure_eq!(
        other("--exclusive")?,
        Some(1),
        "exclusive against exclusive"
    );
    ensure_eq!(other("--shared")?, Some(1), "shared against exclusive");
    flock(&file, FlockOperation::NonBlockingLockShared)?;
    ensure_eq!(other("--exclusive")?, Some(1), "exclusive against shared");
    ensure_eq!(other("--shared")?, Some(0), "shared against shared");
    flock(&file, FlockOperation::Unlock)?;
    ensure_eq!(other("--exclusive")?, Some(0), "exclusive after unlocking");
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    drop(file);
    ensure_eq!(other("--exclusive")?, Some(0), "exclusive after closing");
    fs.finish()
}

pub(crate) fn fcntl_locks(case: &Case) -> Outcome {
    let fs = case.fs()?;
    let path = fs.at("locked");
    fs::write(&path, [0; 1000])?;
    in_python("fcntl", &path)?;
    // And once from here: a lock of our own does not keep us out.
    let file = File::options().read(true).write(true).open(&path)?;
    let lock = libc::flock {
        l_type: libc::F_WRLCK as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: 10,
        l_len: 20,
        l_pid: 0,
    };
    fcntl(&file, FcntlArg::F_SETLK(&lock))?;
    fcntl(&file, FcntlArg::F_SETLK(&lock))?;
    let mut question = lock;
    fcntl(&file, FcntlArg::F_GETLK(&mut question))?;
    ensure_eq!(
        question.l_type,
        libc::F_UNLCK as i16,
        "a lock of our own, asked for"
    );
    drop(file);
    fs.finish()
}

/// The daemon's resident size in bytes.
fn resident(pid: i32) -> Outcome<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .doing("looking for VmRSS")?;
    let kib: u64 = line
        .split_whitespace()
        .nth(1)
        .doing("reading VmRSS")?
        .parse()?;
    Ok(kib * 1024)
}

/// Runs `work` while another thread watches the daemon; returns the largest size seen.
fn watched(pid: Option<i32>, work: impl FnOnce() -> Outcome) -> Outcome<u64> {
    let done = AtomicBool::new(false);
    let largest = AtomicU64::new(0);
    let result = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                if let Some(size) = pid.and_then(|pid| resident(pid).ok()) {
                    largest.fetch_max(size, Ordering::Relaxed);
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let result = work();
        done.store(true, Ordering::Relaxed);
        result
    });
    result?;
    ensure!(
        pid.is_none() || largest.load(Ordering::Relaxed) > 0,
        "the daemon's size was never seen"
    );
    Ok(largest.into_inner())
}

pub(crate) fn two_thousand_handles(case: &Case) -> Outcome {
    let mut fs = case.fs_with(&["--memory", "64M"])?;
    let pid = fs.shale().map(|mount| mount.pid()).transpose()?;
    let top = fs.at("many");
    fs::create_dir(&top)?;
    let largest = watched(pid, || in_python("handles", &top))?;
    note(format!(
        "largest resident size of the daemon: {} MiB",
        largest >> 20
    ));
    ensure!(
        largest <= (64 + 128) << 20,
        "the daemon grew to {} MiB",
        largest >> 20
    );
    fs.refresh()?;
    in_python("handles-again", &top)?;
    fs.finish()
}

pub(crate) fn memory_bound(case: &Case) -> Outcome {
    const PIECES: usize = 2048;
    let mut fs = case.fs_with(&["--memory", "64M"])?;
    let pid = fs.shale().map(|mount| mount.pid()).transpose()?;
    let path = fs.at("large");
    let mut rng = Rng::new(31);
    let noise = rng.bytes(1 << 20);
    // Half of it compresses, half does not; every piece is different.
    let piece = |index: usize| -> Vec<u8> {
        let mut piece = if index.is_multiple_of(2) {
            noise.clone()
        } else {
            vec![(index / 2) as u8; 1 << 20]
        };
        for (slot, word) in piece.chunks_mut(4096).zip(0u32..) {
            slot[..4].copy_from_slice(&(word ^ (index as u32) << 8).to_le_bytes());
        }
        piece
    };
    let written = watched(pid, || {
        let mut file = File::create(&path)?;
        for index in 0..PIECES {
            file.write_all(&piece(index))?;
        }
        Ok(file.sync_all()?)
    })?;
    fs.refresh()?;
    let pid = fs.shale().map(|mount| mount.pid()).transpose()?;
    let read = watched(pid, || {
        let file = File::open(&path)?;
        let mut seen = vec![0; 1 << 20];
        for index in 0..PIECES {
            file.read_exact_at(&mut seen, (index as u64) << 20)?;
            ensure!(seen == piece(index), "piece {index} differs");
        }
        Ok(())
    })?;
    note(format!(
        "largest resident size: {} MiB writing, {} MiB reading",
        written >> 20,
        read >> 20
    ));
    let bound = (64 + 128) << 20;
    ensure!(
        written <= bound,
        "the daemon grew to {} MiB while 2 GiB were written",
        written >> 20
    );
    ensure!(
        read <= bound,
        "the daemon grew to {} MiB while 2 GiB were read",
        read >> 20
    );
    fs::remove_file(&path)?;
    fs.finish()
}

/// Bytes written to a mapping change the time of modification, with and without a page cache of
/// the kernel's own.
pub(crate) fn times_of_mapped_writes(case: &Case) -> Outcome {
    const PROGRAM: &str = "import mmap, os, sys
with open(sys.argv[1], 'r+b') as file:
    os.utime(file.fileno(), (1e9, 1e9))
    with mmap.mmap(file.fileno(), 0) as view:
        view[5000:5003] = b'new'
        view.flush()
    os.fsync(file.fileno())
print(int(os.stat(sys.argv[1]).st_mtime > 1e9))";
    for options in [&[][..], &["-o", "direct_io"][..]] {
        let mut fs = case.fs_with(options)?;
        let path = fs.at("file");
        fs::write(&path, vec![b'x'; 10_000])?;
        let newer = Cmd::new(python()).args(["-c", PROGRAM]).arg(&path).ok()?;
        ensure_eq!(newer.trim(), "1", "{options:?}: whether the time is newer");
        let before = fs::metadata(&path)?.modified()?;
        fs.refresh()?;
        ensure!(
            fs::metadata(&path)?.modified()? == before,
            "{options:?}: the time changed later"
        );
        ensure_eq!(&fs::read(&path)?[4999..5004], b"xnewx", "{options:?}");
        fs.finish()?;
    }
    Ok(())
}
