//! Facts about the machine, a store and its mount, without judgement.

use std::fs::OpenOptions;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::{AccessFlags, eaccess};
use rustix::fs::statvfs;

use shale_fs::options;
use shale_fs::policy::tells_of_refusal;
use shale_fs::reports::Damaged;
use shale_fs::stats::Displaced;

use crate::control::{self, ask_now};
use crate::output::failure::{Failure, exit, one_line, reason};
use crate::system::mountinfo::{Mount, Mounts};
use crate::system::paths;
use crate::system::store_dir;

/// How many bytes at the end of the log are read.
const LOG_TAIL: u64 = 64 << 10;

/// The machine.
#[derive(Clone, Debug)]
pub(crate) struct MachineFacts {
    /// As `uname -r` prints it.
    pub(crate) kernel: String,
    /// Whether `/dev/fuse` can be opened, or why not.
    pub(crate) fuse: Result<(), String>,
    pub(crate) fusermount: bool,
    pub(crate) root: bool,
    /// The hard limit of open files.
    pub(crate) open_files: u64,
    /// RAM, or the limit of the control group.
    pub(crate) ram: u64,
    /// Seconds since 1970.
    pub(crate) now: u64,
}

/// A store, mounted or not.
#[derive(Clone, Debug)]
pub(crate) struct StoreFacts {
    pub(crate) path: PathBuf,
    /// Whether its superblock is valid, or why not.
    pub(crate) format: Result<(), String>,
    pub(crate) mode: u32,
    /// Seconds since 1970 of its latest change.
    pub(crate) newest: u64,
    pub(crate) total: u64,
    pub(crate) available: u64,
    /// Inodes in all and free. A file system that creates them as needed has 0 in all.
    pub(crate) inodes: (u64, u64),
    /// Type and options of its file system.
    pub(crate) backing: String,
    pub(crate) backing_options: Vec<String>,
    pub(crate) log: Log,
    pub(crate) mount: Option<MountFacts>,
}

/// Where a daemon logs, and its last lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Log {
    /// A file and its last lines.
    Read(PathBuf, Lines),
    /// The process logs to something else, which has this name in `/proc`: a terminal, a socket, a
    /// file that cannot be read.
    Elsewhere(u32, PathBuf),
    /// This user may not examine the daemon.
    Hidden,
}

/// The reports in the last lines of a log. Refused attributes do not count: they concern the
/// program that set them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lines {
    /// Warnings and errors.
    pub(crate) warnings: u64,
    /// The last line about damaged data.
    pub(crate) damage: Option<String>,
}

/// The target of a path.
#[derive(Clone, Debug)]
pub(crate) enum Subject {
    Store(Box<StoreFacts>),
    /// A mounted store that this user may not enter.
    Closed(Closed),
    /// A mounted store that is no longer at its path.
    Displaced(Box<Absent>),
}

/// A store that was moved or removed while it was mounted.
#[derive(Clone, Debug)]
pub(crate) struct Absent {
    /// Where it was.
    pub(crate) store: PathBuf,
    /// What happened to it, if the daemon says so.
    pub(crate) how: Option<Displaced>,
    pub(crate) log: Log,
    pub(crate) mount: MountFacts,
}

/// The mount of a store that this user may not enter.
#[derive(Clone, Debug)]
pub(crate) struct Closed {
    pub(crate) store: PathBuf,
    pub(crate) mount: MountFacts,
}

/// The mount of a store.
#[derive(Clone, Debug)]
pub(crate) struct MountFacts {
    pub(crate) mountpoint: PathBuf,
    pub(crate) dead: bool,
    pub(crate) options: Vec<String>,
    pub(crate) daemon: Option<DaemonFacts>,
    /// Files that could not be read, if this user may know.
    pub(crate) damaged: Option<Damaged>,
}

/// The process that serves a mount, as far as this user may examine it.
#[derive(Clone, Debug)]
pub(crate) struct DaemonFacts {
    pub(crate) pid: u32,
    /// Its program has been replaced or removed since it was started.
    pub(crate) outdated: bool,
    pub(crate) open_files: Option<u64>,
    /// Memory that it uses.
    pub(crate) resident: Option<u64>,
}

impl MachineFacts {
    pub(crate) fn look() -> Self {
        let fuse = OpenOptions::new().read(true).write(true).open("/dev/fuse");
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let defaults = options::Machine::detect();
        Self {
            kernel: kernel.trim().to_owned(),
            fuse: fuse.map(|_| ()).map_err(|e| reason(&e)),
            fusermount: paths::program("fusermount3").is_some(),
            root: defaults.root,
            open_files: getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(_, hard)| hard),
            ram: defaults.ram,
            now: seconds(SystemTime::now()),
        }
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

impl Subject {
    /// Examines a store, given directly or by a path in its mount.
    pub(crate) fn look(path: &Path) -> Result<Self, Failure> {
        let mounts = Mounts::read()?;
        // A dead mount cannot be entered, so it is looked up by its path.
        let absolute = paths::absolute(path).map_err(|e| Failure::io("examine", path, &e))?;
        let mount = match mounts.holding(&absolute).filter(|mount| mount.is_shale()) {
            Some(mount) => Some(mount),
            None => mounts.of_store(&absolute),
        };
        let store = match mount {
            Some(mount) => mount.source.clone(),
            None => absolute,
        };
        if let Some(mount) = mount {
            let how = displaced(mount);
            // Something else may be at its path by now.
            if how.is_some() || is_missing(&store) {
                let mount = MountFacts::look(mount, &store);
                return Ok(Self::Displaced(Box::new(Absent {
                    how,
                    log: Log::look(&store, Some(&mount)),
                    mount,
                    store,
                })));
            }
        }
        match StoreFacts::look(path, &store, mount, &mounts) {
            Ok(store) => Ok(Self::Store(Box::new(store))),
            Err(failure) => match mount {
                Some(mount) if failure.status == exit::NO_PERMISSION => {
                    match path.symlink_metadata() {
                        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
                            Err(Failure::io("examine", path, &e))
                        }
                        _ => Ok(Self::Closed(Closed {
                            mount: MountFacts::look(mount, &store),
                            store,
                        })),
                    }
                }
                _ => Err(failure),
            },
        }
    }
}

fn is_missing(store: &Path) -> bool {
    let looked = store.symlink_metadata();
    looked.is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound)
}

/// What happened to the store of a mount, if its daemon says so.
fn displaced(mount: &Mount) -> Option<Displaced> {
    if paths::is_dead_mount(&mount.mountpoint) {
        return None;
    }
    control::stats(&mount.mountpoint)?.displaced
}

impl StoreFacts {
    fn look(
        path: &Path,
        store: &Path,
        mount: Option<&Mount>,
        mounts: &Mounts,
    ) -> Result<Self, Failure> {
        let metadata = std::fs::metadata(store).map_err(|e| Failure::io("examine", store, &e))?;
        if mount.is_none() && !store_dir::is_store(store) {
            return Err(control::neither(path));
        }
        let failed = |e: std::io::Error| Failure::io("examine store", store, &e);
        eaccess(store, AccessFlags::R_OK | AccessFlags::X_OK).map_err(|e| failed(e.into()))?;
        let space = statvfs(store).map_err(|e| failed(e.into()))?;
        let backing = mounts.holding(store);
        let mount = mount.map(|mount| MountFacts::look(mount, store));
        Ok(Self {
            format: shale_store::check_superblock(store).map_err(|e| one_line(&e.to_string())),
            mode: metadata.mode(),
            newest: newest(store),
            total: space.f_blocks * space.f_frsize,
            available: space.f_bavail * space.f_frsize,
            inodes: (space.f_files, space.f_favail),
            backing: backing.map_or_else(String::new, |mount| mount.file_system.clone()),
            backing_options: backing.map_or_else(Vec::new, |mount| mount.options.clone()),
            log: Log::look(store, mount.as_ref()),
            mount,
            path: store.to_owned(),
        })
    }
}

impl Log {
    fn look(store: &Path, mount: Option<&MountFacts>) -> Self {
        match mount {
            Some(MountFacts {
                daemon: Some(daemon),
                ..
            }) => Self::of_process(daemon.pid),
            Some(mount) if !mount.dead => Self::Hidden,
            // No daemon writes any more. Where an earlier one logged is unknown.
            _ => {
                let path = store.join(store_dir::LOG);
                let lines = std::fs::File::open(&path).and_then(lines);
                Self::Read(path, lines.unwrap_or_default())
            }
        }
    }

    /// Where the standard error of a daemon goes.
    fn of_process(pid: u32) -> Self {
        let stderr = PathBuf::from(format!("/proc/{pid}/fd/2"));
        let Ok(path) = std::fs::read_link(&stderr) else {
            return Self::Hidden;
        };
        // Opening a terminal or a pipe has side effects.
        let is_file = std::fs::metadata(&stderr).is_ok_and(|metadata| metadata.is_file());
        match is_file.then(|| std::fs::File::open(&stderr).and_then(lines)) {
            Some(Ok(lines)) => Self::Read(path, lines),
            _ => Self::Elsewhere(pid, path),
        }
    }
}

/// The latest time among the files at the top and of the index.
fn newest(store: &Path) -> u64 {
    let of = |directory: PathBuf| {
        std::fs::read_dir(directory)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| entry.metadata().ok()?.modified().ok())
            .map(seconds)
            .max()
    };
    of(store.to_owned())
        .max(of(store.join("index")))
        .unwrap_or(0)
}

/// The last lines of a log.
fn lines(mut log: std::fs::File) -> std::io::Result<Lines> {
    let length = log.metadata()?.len();
    log.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL)))?;
    let mut bytes = Vec::new();
    log.take(LOG_TAIL).read_to_end(&mut bytes)?;
    let mut found = Lines::default();
    for line in String::from_utf8_lossy(&bytes).lines() {
        let level = [" WARN ", " ERROR "]
            .iter()
            .find_map(|level| line.find(level));
        if let Some(at) = level.filter(|_| !tells_of_refusal(line)) {
            found.warnings += 1;
            if shale_store::Error::tells_of_damage(line) {
                found.damage = Some(line[at..].trim().to_owned());
            }
        }
    }
    Ok(found)
}

impl MountFacts {
    fn look(mount: &Mount, store: &Path) -> Self {
        let dead = paths::is_dead_mount(&mount.mountpoint);
        Self {
            mountpoint: mount.mountpoint.clone(),
            dead,
            options: mount.options.clone(),
            daemon: if dead {
                None
            } else {
                process_of(mount, store).and_then(DaemonFacts::look)
            },
            damaged: if dead {
                None
            } else {
                ask_now(&mount.mountpoint, "damaged")
                    .ok()
                    .flatten()
                    .and_then(|text| serde_json::from_str(&text).ok())
            },
        }
    }
}

/// The process that serves a mount. The mount itself names it; otherwise the lock does, unless the
/// daemon only reads.
fn process_of(mount: &Mount, store: &Path) -> Option<u32> {
    let asked = control::server(&mount.mountpoint);
    if asked.is_some() || mount.is_read_only() {
        return asked;
    }
    let note = std::fs::read_to_string(store.join(store_dir::LOCK)).ok()?;
    note.split_whitespace().next()?.parse().ok()
}

impl DaemonFacts {
    fn look(pid: u32) -> Option<Self> {
        let process = PathBuf::from(format!("/proc/{pid}"));
        let name = std::fs::read_to_string(process.join("comm")).ok()?;
        if name.trim_end() != "shale" {
            return None;
        }
        let program = std::fs::read_link(process.join("exe"));
        let limits = std::fs::read_to_string(process.join("limits")).unwrap_or_default();
        let status = std::fs::read_to_string(process.join("status")).unwrap_or_default();
        Some(Self {
            pid,
            outdated: program.is_ok_and(|path| path.to_string_lossy().ends_with(" (deleted)")),
            open_files: open_files(&limits),
            resident: resident(&status),
        })
    }
}

/// The soft limit in `/proc/PID/limits`.
fn open_files(limits: &str) -> Option<u64> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The memory in `/proc/PID/status`.
fn resident(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_memory_of_a_process_are_found() {
        let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
        let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        assert_eq!(open_files(&limits), Some(soft));
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        assert!(resident(&status).unwrap() > 1 << 20);
        assert_eq!(open_files(""), None);
        assert_eq!(resident("VmRSS: much"), None);
    }

    #[test]
    fn only_warnings_and_errors_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("shale.log");
        let look = || Log::look(dir.path(), None);
        let warnings = |warnings| Lines {
            warnings,
            damage: None,
        };
        assert_eq!(look(), Log::Read(path.clone(), warnings(0)));
        let log = "2026-01-01T00:00:00Z  INFO all is well\n\
                   2026-01-01T00:00:00Z  WARN a\n\
                   2026-01-01T00:00:00Z ERROR b\n\
                   2026-01-01T00:00:00Z  WARN /run: attribute user.shale.codec refused: \
                   'gzip' is not a valid codec inode=1\n";
        std::fs::write(&path, log).unwrap();
        assert_eq!(look(), Log::Read(path.clone(), warnings(2)));
        let error = "ERROR read: inode 5, offset 0: frame at 64 of pack 1 is damaged: checksum";
        std::fs::write(&path, format!("{log}2026-01-01T00:00:00Z {error}\n")).unwrap();
        let damage = Some(error.to_owned());
        assert_eq!(
            look(),
            Log::Read(
                path,
                Lines {
                    warnings: 3,
                    damage
                }
            )
        );
    }

    #[test]
    fn the_log_is_looked_for_where_the_daemon_writes() {
        use std::process::{Command, Stdio};
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("other.log");
        std::fs::write(&path, "x  WARN y\n").unwrap();
        let log = std::fs::File::open(&path).unwrap();
        let look = |stderr: Stdio| {
            let mut sleep = Command::new("sleep");
            let mut child = sleep.arg("60").stderr(stderr).spawn().unwrap();
            let found = Log::of_process(child.id());
            child.kill().unwrap();
            child.wait().unwrap();
            (child.id(), found)
        };
        let lines = Lines {
            warnings: 1,
            damage: None,
        };
        assert_eq!(look(log.into()).1, Log::Read(path, lines));
        let (pid, found) = look(Stdio::null());
        assert_eq!(found, Log::Elsewhere(pid, "/dev/null".into()));
        let (pid, found) = look(Stdio::piped());
        let Log::Elsewhere(by, to) = found else {
            panic!("{found:?}")
        };
        assert_eq!(by, pid);
        assert!(to.to_string_lossy().starts_with("pipe:"), "{to:?}");
    }
}
