//! Entries in utab, libmount's table of what the kernel does not know about mounts.
//!
//! umount(8) asks statfs(2) for the type of a mount, which is `fuse` without our subtype. It then
//! finds no helper, unmounts by itself, and returns before everything is durable. If this table has
//! an entry for the mount point, it reads mountinfo instead, finds `fuse.shale` and calls
//! umount.fuse.shale. So every mount by root has an entry:
//!
//! ```text
//! SRC=shale TARGET=/mnt/a\040b ROOT=/ OPTS=helper=fuse.shale
//! ```
//!
//! mount(8) adds its own entry after ours when it has options to keep (`_netdev`, `x-...`). It
//! would not if there were one with the same source, so ours does not name the store.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::system::mountinfo::{FILE_SYSTEM, Mounts, unescape};

/// Where libmount keeps it. `utab.lock` locks it.
const TABLE: &str = "/run/mount/utab";
const SOURCE: &str = "shale";
const MODE: u32 = 0o644;
/// libmount holds the lock for as long as it takes to write a small file.
const PATIENCE: Duration = Duration::from_secs(5);

/// Adds the entry of a mount, so that umount(8) waits for it.
///
/// # Errors
/// The table cannot be written.
pub(crate) fn mark(mountpoint: &Path) -> io::Result<()> {
    Table::of_system().change(|text| with_entry(text, mountpoint))
}

/// Removes the entries of a mount that is gone, that of mount(8) too. They stay when a ShaleFS
/// store is mounted there again: they may belong to it.
///
/// # Errors
/// The table cannot be written.
pub(crate) fn unmark(store: &Path, mountpoint: &Path) -> io::Result<()> {
    let table = Table::of_system();
    if !table.path.exists() {
        return Ok(());
    }
    table.change(|text| {
        let mounts = Mounts::read().ok()?;
        if mounts.has_shale_at(mountpoint) {
            return None;
        }
        without_entries(text, store, mountpoint)
    })
}

/// The table with our entry; none if it is already there.
fn with_entry(text: &[u8], mountpoint: &Path) -> Option<Vec<u8>> {
    let ours = |line: &&[u8]| Entry::parse(line).is(Path::new(SOURCE), mountpoint);
    if text.split(|&b| b == b'\n').any(|line| ours(&line)) {
        return None;
    }
    let mut changed = text.to_owned();
    if !changed.is_empty() && !changed.ends_with(b"\n") {
        changed.push(b'\n');
    }
    changed.extend_from_slice(format!("SRC={SOURCE} TARGET=").as_bytes());
    escape(mountpoint, &mut changed);
    changed.extend_from_slice(format!(" ROOT=/ OPTS=helper={FILE_SYSTEM}\n").as_bytes());
    Some(changed)
}

/// The table without the entries of this mount; none if there are none. The others are unchanged.
fn without_entries(text: &[u8], store: &Path, mountpoint: &Path) -> Option<Vec<u8>> {
    let stays = |line: &&[u8]| {
        let entry = Entry::parse(line);
        !entry.is(Path::new(SOURCE), mountpoint) && !entry.is(store, mountpoint)
    };
    let lines = text.split_inclusive(|&b| b == b'\n');
    let kept: Vec<u8> = lines.filter(stays).flatten().copied().collect();
    (kept.len() != text.len()).then_some(kept)
}

/// Which mount a line is for.
#[derive(Default)]
struct Entry {
    source: Option<PathBuf>,
    target: Option<PathBuf>,
}

impl Entry {
    fn parse(line: &[u8]) -> Self {
        let mut entry = Self::default();
        for field in line.split(|b| b" \t\n".contains(b)) {
            if let Some(value) = field.strip_prefix(b"SRC=") {
                entry.source = Some(unescape(value));
            } else if let Some(value) = field.strip_prefix(b"TARGET=") {
                entry.target = Some(unescape(value));
            }
        }
        entry
    }

    fn is(&self, source: &Path, target: &Path) -> bool {
        self.source.as_deref() == Some(source) && self.target.as_deref() == Some(target)
    }
}

/// As libmount does it.
fn escape(path: &Path, text: &mut Vec<u8>) {
    for &byte in path.as_os_str().as_bytes() {
        if b" \t\n\\".contains(&byte) {
            text.extend_from_slice(format!("\\{byte:03o}").as_bytes());
        } else {
            text.push(byte);
        }
    }
}

struct Table {
    path: PathBuf,
}

impl Table {
    fn of_system() -> Self {
        Self { path: TABLE.into() }
    }

    /// Replaces the text by the result of `change`, with libmount locked out.
    fn change(&self, change: impl Fn(&[u8]) -> Option<Vec<u8>>) -> io::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.try_change(&change) {
                // `change` sees whether it is done.
                Err(e) if e.kind() == io::ErrorKind::Interrupted && Instant::now() < deadline => {}
                changed => return changed,
            }
        }
    }

    fn try_change(&self, change: impl Fn(&[u8]) -> Option<Vec<u8>>) -> io::Result<()> {
        let _lock = self.lock()?;
        let text = match std::fs::read(&self.path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            read => read?,
        };
        let Some(changed) = change(&text) else {
            return Ok(());
        };
        let new = self.path.with_extension("shale");
        let replaced = write(&new, &changed).and_then(|()| std::fs::rename(&new, &self.path));
        if replaced.is_err() {
            let _ = std::fs::remove_file(&new);
        }
        replaced
    }

    fn lock(&self) -> io::Result<File> {
        if let Some(directory) = self.path.parent()
            && !directory.exists()
        {
            match DirBuilder::new().mode(0o755).create(directory) {
                // The daemon's umask is for files of the store.
                Ok(()) => std::fs::set_permissions(directory, Permissions::from_mode(0o755))?,
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
        }
        let path = self.path.with_extension("lock");
        let lock = match File::open(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                let lock = OpenOptions::new()
                    .read(true)
                    .append(true)
                    .create(true)
                    .mode(MODE)
                    .open(&path)?;
                lock.set_permissions(Permissions::from_mode(MODE))?;
                lock
            }
            opened => opened?,
        };
        let deadline = Instant::now() + PATIENCE;
        loop {
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(lock),
                Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(e) => return Err(e.into()),
            }
        }
    }
}

/// Writes a file of which this process is the only writer.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(MODE)
        .open(path)?;
    file.set_permissions(Permissions::from_mode(MODE))?;
    file.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHERS: &[u8] = b"\
SRC=server:/x TARGET=/mnt/else\\040where ROOT=/ OPTS=_netdev
ID=7 SRC=shale TARGET=/mnt/a ROOT=/ ATTRS=y OPTS=user=alice
SRC=/store TARGET=/mnt/b ROOT=/ OPTS=x-a
";

    #[test]
    fn an_entry_is_added_once_and_removed_to_the_byte() {
        let mountpoint = Path::new("/mnt/a b\\c");
        let store = Path::new("/store");
        let with = with_entry(OTHERS, mountpoint).unwrap();
        let line = b"SRC=shale TARGET=/mnt/a\\040b\\134c ROOT=/ OPTS=helper=fuse.shale\n";
        assert_eq!(with, [OTHERS, line].concat());
        assert_eq!(with_entry(&with, mountpoint), None);
        assert_eq!(without_entries(&with, store, mountpoint).unwrap(), OTHERS);
        assert_eq!(without_entries(OTHERS, store, mountpoint), None);
    }

    #[test]
    fn what_mount_kept_of_the_same_mount_goes_with_it() {
        let store = Path::new("/store");
        let text = b"SRC=/store TARGET=/mnt/c ROOT=/ OPTS=_netdev\n";
        let text = [OTHERS, text].concat();
        let without = without_entries(&text, store, Path::new("/mnt/c"));
        assert_eq!(without.unwrap(), OTHERS);
    }

    #[test]
    fn a_last_line_without_an_end_stays_a_line() {
        let text = b"SRC=a TARGET=/b ROOT=/";
        let with = with_entry(text, Path::new("/c")).unwrap();
        assert_eq!(with.split(|&b| b == b'\n').count(), 3);
        assert!(with.starts_with(b"SRC=a TARGET=/b ROOT=/\nSRC=shale "));
    }

    #[test]
    fn changes_at_the_same_time_do_not_overtake_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("mount/utab");
        let table = Table { path: path.clone() };
        let names: Vec<PathBuf> = (0..40).map(|n| format!("/mnt/{n}").into()).collect();
        std::thread::scope(|scope| {
            for name in &names {
                scope.spawn(|| table.change(|text| with_entry(text, name)).unwrap());
            }
        });
        let text = std::fs::read(&path).unwrap();
        assert_eq!(text.split(|&b| b == b'\n').count(), names.len() + 1);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, MODE);
        assert!(!path.with_extension("shale").exists());
    }

    #[test]
    fn a_failed_change_leaves_the_table_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("utab");
        std::fs::write(&path, OTHERS).unwrap();
        // In the way of the new table.
        std::fs::create_dir(path.with_extension("shale")).unwrap();
        let table = Table { path: path.clone() };
        assert!(table.change(|_| Some(Vec::new())).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), OTHERS);
    }
}
