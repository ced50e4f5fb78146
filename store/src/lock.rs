//! One daemon at a time: the lock of a store.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::Error;

/// Name of the lock in a store.
pub const FILE: &str = "lock";

/// Held as long as the store is in use. Whoever waits for its end finds the note gone when the
/// store was left in order, and still there when it was not.
#[derive(Debug)]
pub struct StoreLock {
    file: File,
    keep_note: AtomicBool,
}

impl StoreLock {
    /// Takes the lock. `purpose` tells others what the store is used for.
    ///
    /// # Errors
    /// [`Error::Locked`] when another process has it.
    pub fn take(store: &Path, purpose: &str) -> Result<Self, Error> {
        let path = store.join(FILE);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(Error::io("open", &path))?;
        match lock_soon(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                let note = format!("{} {purpose}\n", std::process::id());
                let write = |file: &mut File| {
                    file.set_len(0)?;
                    file.seek(SeekFrom::Start(0))?;
                    file.write_all(note.as_bytes())
                };
                write(&mut file).map_err(Error::io("write", &path))?;
                Ok(Self {
                    file,
                    keep_note: AtomicBool::new(false),
                })
            }
            Err(Errno::WOULDBLOCK) => Err(held(store, file)),
            Err(errno) => Err(Error::io("lock", path)(errno.into())),
        }
    }
}

impl StoreLock {
    /// Whether to leave the note behind: not everything has become durable.
    pub(crate) fn leave_note(&self, leave: bool) {
        self.keep_note.store(leave, Ordering::Relaxed);
    }
}

fn held(store: &Path, mut file: File) -> Error {
    let mut note = String::new();
    let _ = file.read_to_string(&mut note);
    let holder = match note.trim().split_once(' ') {
        Some((pid, purpose)) => format!("process {pid} ({purpose})"),
        None => "another process".to_owned(),
    };
    Error::Locked {
        path: store.to_owned(),
        holder,
    }
}

/// Held by those who only read, of whom there may be several; writes nothing.
#[derive(Debug)]
pub(crate) struct SharedLock {
    _file: File,
}

impl SharedLock {
    /// Takes the lock. `None` where there is no lock file: then nobody has ever mounted the
    /// store, or it is a copy.
    pub(crate) fn take(store: &Path) -> Result<Option<Self>, Error> {
        let path = store.join(FILE);
        let file = match File::open(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(Error::io("open", &path))?,
        };
        match lock_soon(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(Errno::WOULDBLOCK) => Err(held(store, file)),
            Err(errno) => Err(Error::io("lock", path)(errno.into())),
        }
    }
}

/// Takes a lock that is free, or becomes free at once: a daemon that was killed keeps it until
/// the kernel has taken it apart. A server that is asked for the lock may be interrupted. The
/// lock ends with the file; to unlock it could fail.
fn lock_soon(file: &File, how: FlockOperation) -> Result<(), Errno> {
    for _ in 0..GRACE_STEPS {
        match flock(file, how) {
            Err(Errno::WOULDBLOCK | Errno::INTR) => {}
            other => return other,
        }
        std::thread::sleep(GRACE_STEP);
    }
    flock(file, how)
}

/// How long a held lock is waited for.
const GRACE_STEPS: u32 = 20;
const GRACE_STEP: std::time::Duration = std::time::Duration::from_millis(50);

impl Drop for StoreLock {
    fn drop(&mut self) {
        // The note is about a process that is gone; the lock itself ends with the file.
        if !self.keep_note.load(Ordering::Relaxed) {
            let _ = self.file.set_len(0);
        }
    }
}
