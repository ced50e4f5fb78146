//! One daemon at a time: the lock of a store.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FlockOperation, StatVfsMountFlags, flock, fstatvfs, major, minor};
use rustix::io::Errno;

use crate::Error;

/// Name of the lock in a store.
pub const FILE: &str = "lock";

/// Held as long as the store is in use. A process that waits for the lock finds the note gone after
/// a clean shutdown, and still there otherwise.
#[derive(Debug)]
pub(crate) struct StoreLock {
    file: File,
    keep_note: AtomicBool,
    found: Option<String>,
}

impl StoreLock {
    /// Takes the lock. `purpose` shows other processes what the store is used for.
    ///
    /// # Errors
    /// [`Error::Locked`] when another process has it.
    pub(crate) fn take(store: &Path, purpose: &str) -> Result<Self, Error> {
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
                let found = note_in(&mut file);
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
                    found,
                })
            }
            Err(Errno::WOULDBLOCK) => Err(held(store, file)),
            Err(errno) => Err(Error::io("lock", path)(errno.into())),
        }
    }

    /// The note of a process that did not shut down cleanly.
    pub(crate) fn found_note(&self) -> Option<&str> {
        self.found.as_deref()
    }

    /// Keeps the note, also after the end: not everything has become durable.
    pub(crate) fn keep_note(&self) {
        self.keep_note.store(true, Ordering::Relaxed);
    }

    /// Removes the note now: everything is durable. A thread that still uses the store when the
    /// process ends must not make it look as if something were missing.
    pub(crate) fn remove_note(&self) {
        let _ = self.file.set_len(0);
    }

    /// Adds lines to the note; a process that waits for the end of the session shows them.
    pub(crate) fn append_to_note(&self, lines: &[String]) {
        if lines.is_empty() {
            return;
        }
        let text = format!("{}\n", lines.join("\n"));
        let append = |mut file: &File| {
            file.seek(SeekFrom::End(0))?;
            file.write_all(text.as_bytes())
        };
        if let Err(e) = append(&self.file) {
            tracing::warn!(
                "cannot note in the file {FILE} which data is not stored: {e}; the log lists it"
            );
        }
    }
}

fn held(store: &Path, mut file: File) -> Error {
    // With a shared lock, a note belongs to a writer that has died.
    let shared = flock(&file, FlockOperation::NonBlockingLockShared).is_ok();
    let note = note_in(&mut file).unwrap_or_default();
    let holder = match note.lines().next().and_then(|line| line.split_once(' ')) {
        _ if shared => readers(&file),
        Some((pid, purpose)) => format!("process {pid} ({purpose})"),
        None => "another process".to_owned(),
    };
    Error::Locked {
        path: store.to_owned(),
        holder,
    }
}

/// The note in a lock: process and purpose, then perhaps ranges that are not stored.
fn note_in(file: &mut File) -> Option<String> {
    let mut note = String::new();
    file.read_to_string(&mut note).ok()?;
    (!note.trim().is_empty()).then_some(note)
}

/// The readers that share a lock, as far as this machine knows.
fn readers(file: &File) -> String {
    const LOCKS: &str = "/proc/locks";
    let listed = std::fs::read_to_string(LOCKS).unwrap_or_default();
    let place = file.metadata().map(|metadata| {
        let (device, inode) = (metadata.dev(), metadata.ino());
        format!("{:02x}:{:02x}:{inode}", major(device), minor(device))
    });
    match place.map(|place| lockers(&listed, &place)).as_deref() {
        Ok([one]) => format!("process {one}, which reads it"),
        Ok([one, others @ ..]) if !others.is_empty() => {
            format!(
                "process {one} and {} more, which only read it",
                others.len()
            )
        }
        _ => "a process that reads it, perhaps on another machine".to_owned(),
    }
}

/// Processes that share a lock on a file with others, but not this one: lines of `/proc/locks` as
/// `1: FLOCK  ADVISORY  READ 1234 08:01:5678 0 EOF`.
fn lockers(listed: &str, place: &str) -> Vec<u32> {
    let reader = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        match fields[..] {
            [_, "FLOCK", _, "READ", pid, at, ..] if at == place => pid.parse().ok(),
            _ => None,
        }
    };
    let mut found: Vec<u32> = listed.lines().filter_map(reader).collect();
    found.retain(|&pid| pid != std::process::id());
    found.sort_unstable();
    found.dedup();
    found
}

/// The lock of readers, of which there may be several; writes nothing.
#[derive(Debug)]
pub(crate) struct SharedLock {
    _file: File,
    found: Option<String>,
}

impl SharedLock {
    /// Takes the lock. `None` where there is no lock file, because the store is a copy, and on a
    /// medium that can be neither locked nor written.
    pub(crate) fn take(store: &Path) -> Result<Option<Self>, Error> {
        let path = store.join(FILE);
        let mut file = match File::open(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(Error::io("open", &path))?,
        };
        match lock_soon(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(Some(Self {
                found: note_in(&mut file),
                _file: file,
            })),
            Err(Errno::WOULDBLOCK) => Err(held(store, file)),
            Err(Errno::NOSYS | Errno::OPNOTSUPP | Errno::NOLCK) if cannot_be_written(&file) => {
                Ok(None)
            }
            Err(errno) => Err(Error::io("lock", path)(errno.into())),
        }
    }
}

impl SharedLock {
    /// As [`StoreLock::found_note`].
    pub(crate) fn found_note(&self) -> Option<&str> {
        self.found.as_deref()
    }
}

fn cannot_be_written(file: &File) -> bool {
    fstatvfs(file).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// Takes a lock that is free, or becomes free soon: a killed daemon keeps it until the kernel has
/// released its resources. A server may interrupt the request. The lock ends with the file;
/// unlocking could fail.
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

/// How long to wait for a held lock.
const GRACE_STEPS: u32 = 20;
const GRACE_STEP: std::time::Duration = std::time::Duration::from_millis(50);

impl Drop for StoreLock {
    fn drop(&mut self) {
        // The note is about a process that has ended; the lock itself ends with the file.
        if !self.keep_note.load(Ordering::Relaxed) {
            self.remove_note();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_of_a_file_are_found_among_all_locks() {
        let own = std::process::id();
        let listed = format!(
            "1: FLOCK  ADVISORY  READ 77 08:01:5678 0 EOF\n\
             2: POSIX  ADVISORY  READ 78 08:01:5678 0 EOF\n\
             3: FLOCK  ADVISORY  WRITE 79 08:01:5678 0 EOF\n\
             4: FLOCK  ADVISORY  READ 80 08:01:5679 0 EOF\n\
             5: FLOCK  ADVISORY  READ 12 08:01:5678 0 EOF\n\
             6: FLOCK  ADVISORY  READ 77 08:01:5678 0 EOF\n\
             7: FLOCK  ADVISORY  READ {own} 08:01:5678 0 EOF\n\
             8: -> FLOCK ADVISORY READ 81 08:01:5678 0 EOF\n"
        );
        assert_eq!(lockers(&listed, "08:01:5678"), [12, 77]);
        assert_eq!(lockers("", "08:01:5678"), []);
    }
}
