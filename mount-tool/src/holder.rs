//! Waiting for the daemon that holds a store.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::backend::store_files;

/// Once the lock is free, only the end of the process itself is missing.
const LAST_MOMENT: Timespec = Timespec {
    tv_sec: 10,
    tv_nsec: 0,
};

/// The daemon of a mounted store. Taken while it is mounted, so that it is certainly this one.
pub(crate) struct Holder {
    lock: File,
    process: Option<OwnedFd>,
}

impl Holder {
    /// Whoever holds the store; none where that cannot be seen. A dead daemon's process is not
    /// looked for: its number may belong to another one by now.
    pub(crate) fn of(store: &Path, dead: bool) -> Option<Self> {
        let mut lock = File::open(store.join(store_files::LOCK)).ok()?;
        let mut note = String::new();
        let _ = lock.read_to_string(&mut note);
        let process = if dead { None } else { process(&note) };
        Some(Self { lock, process })
    }

    /// Returns when the daemon has finished: it holds the lock exclusively as long as it lives.
    pub(crate) fn wait(self) -> Result<(), Errno> {
        let mut lock = self.lock;
        loop {
            match Flock::lock(lock, FlockArg::LockShared) {
                Ok(_) => break,
                Err((file, Errno::EINTR)) => lock = file,
                Err((_, e)) => return Err(e),
            }
        }
        if let Some(process) = &self.process {
            let _ = poll(
                &mut [PollFd::new(process, PollFlags::IN)],
                Some(&LAST_MOMENT),
            );
        }
        Ok(())
    }
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
    // Written in another PID namespace, the number may be anybody's here.
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
        Holder::of(dir.path(), false).unwrap().wait().unwrap();
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
    fn the_lock_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let held = Flock::lock(File::create(&path).unwrap(), FlockArg::LockExclusive).unwrap();
        let holder = Holder::of(dir.path(), false).unwrap();
        let waiting = std::thread::spawn(move || holder.wait());
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!waiting.is_finished());
        drop(held);
        waiting.join().unwrap().unwrap();
    }
}
