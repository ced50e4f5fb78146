//! The daemon that holds a store, and waiting for its end.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::control;
use crate::system::mountinfo::Mount;
use crate::system::store_dir;

/// How long a process may take to exit after it has released the lock.
const LAST_MOMENT: Timespec = Timespec {
    tv_sec: 10,
    tv_nsec: 0,
};

/// How long the kernel may take to clean up a dead daemon. A lock that is still held after that
/// belongs to another one.
const TAKEN_APART: Duration = Duration::from_secs(2);

/// The daemon of a mounted store. It is looked up while the store is mounted, so that it is the
/// right one.
pub(crate) struct Holder {
    /// None when the store can no longer be read.
    lock: Option<File>,
    /// Its note in the lock. It removes the note once everything is durable.
    note: String,
    /// It only reads, and has nothing to make durable.
    reads: bool,
    /// It has died.
    dead: bool,
    process: Option<OwnedFd>,
}

/// How a daemon left its store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shutdown {
    Clean,
    /// Something did not become durable, or the daemon died before. What it wrote about that, line
    /// by line.
    Unclean(String),
}

impl Holder {
    /// The daemon of a read-only mount. A store may have several of them and none leaves a note, so
    /// the mount names the process.
    pub(crate) fn reader(mount: &Mount, dead: bool) -> Option<Self> {
        if dead || !mount.is_read_only() || is_written(&mount.source) {
            return None;
        }
        Some(Self {
            lock: None,
            note: String::new(),
            reads: true,
            dead: false,
            process: process(&control::server(&mount.mountpoint)?.to_string()),
        })
    }

    /// The daemon that holds the lock; none when the lock cannot be opened. The process of a dead
    /// daemon is not looked up: its number may belong to another one by now.
    pub(crate) fn of(store: &Path, dead: bool) -> Option<Self> {
        let lock = File::open(store.join(store_dir::LOCK)).ok()?;
        Some(Self::with(lock, dead))
    }

    /// The same for a store that can no longer be found or read, through the files that the daemon
    /// has open.
    pub(crate) fn of_process(pid: u32) -> Option<Self> {
        let is_lock = |path: &PathBuf| {
            let name = std::fs::read_link(path).ok();
            name.is_some_and(|name| name.file_name() == Some(OsStr::new(store_dir::LOCK)))
        };
        let open = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
        let mut open = open.flatten().map(|entry| entry.path());
        match open.find(is_lock).map(File::open) {
            Some(Ok(lock)) => Some(Self::with(lock, false)),
            _ => Some(Self {
                lock: None,
                note: String::new(),
                reads: false,
                dead: false,
                process: Some(process(&pid.to_string())?),
            }),
        }
    }

    fn with(mut lock: File, dead: bool) -> Self {
        let mut note = String::new();
        let _ = lock.read_to_string(&mut note);
        let process = if dead { None } else { process(&note) };
        Self {
            lock: Some(lock),
            note,
            reads: false,
            dead,
            process,
        }
    }

    /// Returns when the daemon has finished. It holds the lock exclusively while it lives.
    pub(crate) fn wait(self) -> Result<Shutdown, Errno> {
        let lock = self.lock;
        if let Some(lock) = lock.as_ref().filter(|_| self.dead) {
            let free = || flock(lock, FlockOperation::NonBlockingLockShared).is_ok();
            let begun = Instant::now();
            while !free() && begun.elapsed() < TAKEN_APART {
                std::thread::sleep(Duration::from_millis(20));
            }
        } else if let Some(lock) = &lock {
            retry_on_intr(|| flock(lock, FlockOperation::LockShared))?;
        }
        if let Some(process) = &self.process {
            let most = lock.is_some().then_some(&LAST_MOMENT);
            let _ = poll(&mut [PollFd::new(process, PollFlags::IN)], most);
        }
        let mut note = String::new();
        let read = lock.is_some_and(|mut lock| {
            lock.seek(SeekFrom::Start(0)).is_ok() && lock.read_to_string(&mut note).is_ok()
        });
        // A different note is that of a later daemon.
        let said = (!self.note.is_empty()).then(|| note.strip_prefix(&self.note));
        Ok(match said.flatten() {
            _ if self.reads => Shutdown::Clean,
            None if read => Shutdown::Clean,
            said => Shutdown::Unclean(said.unwrap_or_default().to_owned()),
        })
    }
}

/// Whether a daemon holds a store to write to it. A writable mount may have been remounted
/// read-only.
fn is_written(store: &Path) -> bool {
    File::open(store.join(store_dir::LOCK)).is_ok_and(|lock| {
        flock(&lock, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
    })
}

/// The process whose number comes first in the note, if it is one of ours.
fn process(note: &str) -> Option<OwnedFd> {
    let number: i32 = note
        .split_whitespace()
        .next()?
        .parse()
        .ok()
        .filter(|&n| n > 0)?;
    let process = pidfd_open(Pid::from_raw(number)?, PidfdFlags::empty()).ok()?;
    // The number may be from another PID namespace and mean another process here.
    let name = std::fs::read_to_string(format!("/proc/{number}/comm")).ok()?;
    (name.trim_end() == "shale").then_some(process)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_free_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Holder::of(dir.path(), false).is_none());
        std::fs::write(dir.path().join("lock"), "").unwrap();
        let left = Holder::of(dir.path(), false).unwrap().wait();
        assert_eq!(left, Ok(Shutdown::Clean));
    }

    #[test]
    fn a_note_that_stays_says_that_something_was_not_durable() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let left_with = |after: &str| {
            std::fs::write(&path, "999999999 mounted on /mnt\n").unwrap();
            let holder = Holder::of(dir.path(), false).unwrap();
            std::fs::write(&path, after).unwrap();
            holder.wait().unwrap()
        };
        assert_eq!(left_with(""), Shutdown::Clean);
        assert_eq!(left_with("7 mounted on /mnt\n"), Shutdown::Clean);
        let otherwise = |said: &str| Shutdown::Unclean(said.to_owned());
        assert_eq!(left_with("999999999 mounted on /mnt\n"), otherwise(""));
        assert_eq!(
            left_with("999999999 mounted on /mnt\n/a: bytes 0-9 are lost\n"),
            otherwise("/a: bytes 0-9 are lost\n")
        );
    }

    #[test]
    fn a_strangers_number_in_the_note_is_ignored() {
        assert!(process("1 mounted on /mnt").is_none());
        assert!(process("999999999 mounted").is_none());
        for note in ["", "mounted", "-1 x", "0 x"] {
            assert!(process(note).is_none(), "{note}");
        }
    }

    #[test]
    fn a_dead_daemon_is_not_waited_for_while_another_has_the_store() {
        let dir = tempfile::tempdir().unwrap();
        let held = File::create(dir.path().join("lock")).unwrap();
        flock(&held, FlockOperation::LockExclusive).unwrap();
        Holder::of(dir.path(), true).unwrap().wait().unwrap();
    }

    #[test]
    fn the_lock_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = File::create(&path).unwrap();
        flock(&held, FlockOperation::LockExclusive).unwrap();
        let holder = Holder::of(dir.path(), false).unwrap();
        let waiting = std::thread::spawn(move || holder.wait());
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!waiting.is_finished());
        drop(held);
        waiting.join().unwrap().unwrap();
    }
}
