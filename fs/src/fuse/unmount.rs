//! Ending a mount, as root or through fusermount3.

use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};

/// Programs that look at mounts (`df`, a file manager, a monitor) hold one for a moment. A mount
/// that is busy for longer than this is in use.
const PATIENCE: Duration = Duration::from_secs(3);
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(8);

/// Ends a mount.
#[derive(Clone, Debug)]
pub struct Unmounter {
    mountpoint: PathBuf,
}

impl Unmounter {
    /// For the present mount. The path is absolute and without symbolic links.
    #[must_use]
    pub fn at(mountpoint: PathBuf) -> Self {
        Self { mountpoint }
    }

    /// Unmounts; [`Mounted::wait`](crate::Mounted::wait) returns when everything is durable.
    ///
    /// # Errors
    /// `ResourceBusy` when files stay open for some seconds, `PermissionDenied`, `NotFound` where
    /// there is no fusermount3 for an ordinary user, or what the system says.
    pub fn unmount(&self) -> io::Result<()> {
        until_idle(PATIENCE, || self.end(MntFlags::empty(), "-u"))
    }

    /// Detaches the mount at once; it ends when the last file in it is closed.
    ///
    /// # Errors
    /// As [`Unmounter::unmount`], but never `ResourceBusy`.
    pub fn detach(&self) -> io::Result<()> {
        self.end(MntFlags::MNT_DETACH, "-uz")
    }

    fn end(&self, flags: MntFlags, letters: &str) -> io::Result<()> {
        match umount2(&self.mountpoint, flags | MntFlags::UMOUNT_NOFOLLOW) {
            Err(Errno::EPERM) if !nix::unistd::geteuid().is_root() => self.ask_fusermount(letters),
            ended => Ok(ended?),
        }
    }

    fn ask_fusermount(&self, letters: &str) -> io::Result<()> {
        let output = Command::new("fusermount3")
            .arg(letters)
            .arg("--")
            .arg(&self.mountpoint)
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .output()?;
        if output.status.success() {
            return Ok(());
        }
        Err(meant(&String::from_utf8_lossy(&output.stderr)))
    }
}

/// Only the message of fusermount3 says what failed: its exit status is always the same.
fn meant(said: &str) -> io::Error {
    let says = |words: &[&str]| words.iter().any(|word| said.contains(word));
    if says(&["busy"]) {
        Errno::EBUSY.into()
    } else if says(&["not permitted", "denied", "not found in"]) {
        Errno::EPERM.into()
    } else {
        io::Error::other(said.trim().to_owned())
    }
}

/// Tries again while the mount is busy, until the deadline.
fn until_idle(patience: Duration, mut attempt: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    let deadline = Instant::now() + patience;
    let mut pause = FIRST_PAUSE;
    loop {
        match attempt() {
            Err(e) if e.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline => {
                std::thread::sleep(pause);
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            ended => return ended,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_busy_mount_is_tried_again() {
        let mut answers = vec![Ok(()), Err(Errno::EBUSY), Err(Errno::EBUSY)];
        let mut attempt = || answers.pop().map_or(Ok(()), |answer| Ok(answer?));
        assert!(until_idle(PATIENCE, &mut attempt).is_ok());
        assert!(answers.is_empty());

        let mut attempts = 0;
        let refused = until_idle(PATIENCE, || {
            attempts += 1;
            Err(Errno::EINVAL.into())
        });
        assert!(refused.is_err());
        assert_eq!(attempts, 1);
    }

    #[test]
    fn what_stays_busy_is_given_up() {
        let busy = until_idle(Duration::from_millis(20), || Err(Errno::EBUSY.into()));
        assert_eq!(busy.unwrap_err().kind(), io::ErrorKind::ResourceBusy);
    }

    #[test]
    fn fusermount_is_understood() {
        for (said, kind) in [
            (
                "fusermount3: failed to unmount /m: Device or resource busy\n",
                io::ErrorKind::ResourceBusy,
            ),
            (
                "fusermount3: failed to unmount /m: Operation not permitted\n",
                io::ErrorKind::PermissionDenied,
            ),
            (
                "fusermount3: entry for /m not found in /etc/mtab\n",
                io::ErrorKind::PermissionDenied,
            ),
            ("fusermount3: out of memory\n", io::ErrorKind::Other),
        ] {
            assert_eq!(meant(said).kind(), kind, "{said}");
        }
    }
}
