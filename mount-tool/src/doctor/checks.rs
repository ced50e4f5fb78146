//! What the facts mean, and what to change.

use std::path::Path;

use serde::Serialize;
use shale_fs::live::Displaced;

use super::facts::{Absent, Closed, Lines, Log, Machine, Mounted, Store, Subject};
use crate::report::counted;
use crate::size;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Ok,
    /// It works, and could work better.
    Advice,
    /// It does not work, or data is at risk.
    Problem,
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Check {
    pub(crate) name: &'static str,
    pub(crate) verdict: Verdict,
    /// What is, and unless it is fine, what to do.
    pub(crate) message: String,
}

impl Check {
    fn new(name: &'static str, verdict: Verdict, finding: impl Into<String>) -> Self {
        Self {
            name,
            verdict,
            message: finding.into(),
        }
    }
}

use Verdict::{Advice, Ok, Problem};

/// The oldest kernel whose FUSE has what we ask of it.
const KERNEL: (u32, u32) = (5, 11);
/// Packs that are kept open, and as much again for the rest.
const OPEN_FILES_NEEDED: u64 = 512;
const OPEN_FILES_GOOD: u64 = 4096;
/// RAM below which the daemon has little room beside its smallest budget.
const RAM_SMALL: u64 = 512 << 20;
/// 2025: the time before which no clock of a running machine can be right.
const THIS_PROGRAM: u64 = 1_735_689_600;
/// Damaged files that are named.
const SHOWN: usize = 20;
/// Clocks of two machines may differ a little.
const CLOCK_SKEW: u64 = 300;

/// Everything about the machine.
pub(crate) fn of_machine(machine: &Machine) -> Vec<Check> {
    vec![
        kernel(machine),
        fuse(machine),
        fusermount(machine),
        open_files(machine),
        memory(machine),
    ]
}

/// Everything about what a path leads to.
pub(crate) fn of_subject(machine: &Machine, subject: &Subject) -> Vec<Check> {
    match subject {
        Subject::Store(store) => of_store(machine, store),
        Subject::Closed(closed) => vec![
            entry(closed),
            daemon(&closed.mount),
            mount_options(machine, &closed.mount),
        ]
        .into_iter()
        .chain(data(&closed.mount))
        .collect(),
        Subject::Displaced(absent) => vec![
            displaced(absent),
            log(&absent.log, &absent.store, false),
            daemon(&absent.mount),
            mount_options(machine, &absent.mount),
        ],
    }
}

/// A store that went away under its mount.
fn displaced(absent: &Absent) -> Check {
    let (store, mountpoint) = (absent.store.display(), absent.mount.mountpoint.display());
    let (verdict, finding) = match &absent.how {
        Some(Displaced::Removed) => (
            Problem,
            format!(
                "{store} has been removed under its mount, or a part of it that no store can do \
                 without: nothing that is written can become durable. Copy out of {mountpoint} what \
                 can still be read, then 'shale unmount {mountpoint}' and restore the store from a \
                 copy"
            ),
        ),
        Some(Displaced::Moved(path)) => (
            Advice,
            format!(
                "the store was moved from {store} to {path}; the mount goes on with it. Move it \
                 back, or 'shale unmount {mountpoint}' and mount it from there"
            ),
        ),
        Some(Displaced::OutOfSight) => (
            Advice,
            format!(
                "{store} leads to another place: the file system of the store was unmounted or \
                 covered by another. The mount goes on with it; 'shale unmount {mountpoint}', then \
                 mount that file system again"
            ),
        ),
        None => (
            Problem,
            format!(
                "there is no store at {store} any more; if its daemon lives, root and who mounted \
                 it can ask again what has become of it"
            ),
        ),
    };
    Check::new("store", verdict, finding)
}

fn of_store(machine: &Machine, store: &Store) -> Vec<Check> {
    let mut checks = vec![
        format(store),
        backing(store),
        backing_options(store),
        space(store),
        inodes(store),
        privacy(store),
        clock(machine, store),
        log(&store.log, &store.path, is_only_read(store)),
    ];
    if let Some(mount) = &store.mount {
        checks.extend(data(mount));
        checks.extend([daemon(mount), mount_options(machine, mount)]);
    }
    checks
}

fn kernel(machine: &Machine) -> Check {
    let mut numbers = machine.kernel.split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next().and_then(|text| text.parse::<u32>().ok());
    let release = &machine.kernel;
    let (verdict, finding) = match number().zip(number()) {
        Some(version) if version >= KERNEL => (Ok, format!("Linux {release}")),
        Some(_) => (
            Problem,
            format!(
                "Linux {release} is too old; FUSE as it is needed here begins with {}.{}: install \
                 a newer kernel",
                KERNEL.0, KERNEL.1
            ),
        ),
        None => (
            Advice,
            format!(
                "cannot tell the version of the kernel from '{release}'; it should be {}.{} or \
                 newer",
                KERNEL.0, KERNEL.1
            ),
        ),
    };
    Check::new("kernel", verdict, finding)
}

fn fuse(machine: &Machine) -> Check {
    match &machine.fuse {
        Result::Ok(()) => Check::new("fuse", Ok, "/dev/fuse can be opened"),
        Err(why) => Check::new(
            "fuse",
            Problem,
            format!(
                "cannot open /dev/fuse: {why}; load the module with 'modprobe fuse', open the device \
                 to all users ('chmod 666 /dev/fuse'), or give it to the container"
            ),
        ),
    }
}

fn fusermount(machine: &Machine) -> Check {
    let (verdict, finding) = match (machine.fusermount, machine.root) {
        (true, _) => (Ok, "fusermount3 is there: ordinary users can mount"),
        (false, true) => (
            Advice,
            "fusermount3 is missing, so only root can mount; install the package fuse3",
        ),
        (false, false) => (
            Problem,
            "fusermount3 is missing, so you cannot mount; install the package fuse3",
        ),
    };
    Check::new("fusermount", verdict, finding)
}

fn open_files(machine: &Machine) -> Check {
    let limit = machine.open_files;
    let raise = "raise it in /etc/security/limits.conf (nofile), or with LimitNOFILE= in the unit";
    let (verdict, finding) = if limit < OPEN_FILES_NEEDED {
        (
            Problem,
            format!("{limit} open files are too few for the packs of a store; {raise}"),
        )
    } else if limit < OPEN_FILES_GOOD {
        (
            Advice,
            format!("{limit} open files are few when many files are in use; {raise}"),
        )
    } else {
        (Ok, format!("up to {limit}"))
    };
    Check::new("open files", verdict, finding)
}

fn memory(machine: &Machine) -> Check {
    let ram = size::human(machine.ram);
    if machine.ram < RAM_SMALL {
        Check::new(
            "memory",
            Advice,
            format!(
                "{ram} of memory, or allowed to this control group, is little; mount with a small \
                 budget such as --memory 64M, or raise the limit"
            ),
        )
    } else {
        Check::new("memory", Ok, format!("{ram} for this machine or job"))
    }
}

fn format(store: &Store) -> Check {
    match &store.format {
        Result::Ok(()) => Check::new(
            "store",
            Ok,
            format!("{} has a known format", store.path.display()),
        ),
        Err(why) => Check::new("store", Problem, why.clone()),
    }
}

fn entry(closed: &Closed) -> Check {
    Check::new(
        "store",
        Advice,
        format!(
            "you may not look into {}; ask again as root or as who mounted it",
            closed.store.display()
        ),
    )
}

fn backing(store: &Store) -> Check {
    let kind = store.backing.as_str();
    let (verdict, finding) = match kind {
        "ext4" | "xfs" | "btrfs" | "lustre" | "zfs" | "bcachefs" | "f2fs" | "gpfs" => {
            (Ok, kind.to_owned())
        }
        "squashfs" | "erofs" | "iso9660" => (Ok, format!("{kind}, to be mounted with --ro")),
        "tmpfs" | "ramfs" => (
            Problem,
            format!("{kind}: everything is gone after a reboot; move the store to a disk"),
        ),
        "fuse.shale" => (
            Problem,
            "the store is inside another ShaleFS mount: slow, and compressed twice for nothing; \
             move it out"
                .to_owned(),
        ),
        "nfs" | "nfs4" | "cifs" | "smb3" | "9p" | "virtiofs" => (
            Advice,
            format!(
                "{kind}: two machines may not see each other's lock, and fsync may be slow; make \
                 sure that one machine alone mounts the store, or all of them with --ro, and \
                 prefer a local disk or Lustre"
            ),
        ),
        "overlay" => (
            Advice,
            "overlay: this looks like the inside of a container; put the store on a volume that \
             outlives it"
                .to_owned(),
        ),
        other => (
            Advice,
            format!(
                "'{other}' has not been tried; it must keep fsync's promises and replace files \
                 atomically by rename"
            ),
        ),
    };
    Check::new("backing", verdict, finding)
}

fn backing_options(store: &Store) -> Check {
    let has = |option: &str| store.backing_options.iter().any(|found| found == option);
    let (verdict, finding) = if has("ro") && store.mount.is_none() {
        (
            Advice,
            "the file system of the store is mounted read-only; remount it writable, or mount the \
             store with --ro",
        )
    } else if has("ro") && !is_only_read(store) {
        (
            Problem,
            "the file system of the store has become read-only under the mount, so nothing can \
             be written any more; find out why ('dmesg'), and remount it writable",
        )
    } else if has("nobarrier") || has("barrier=0") {
        (
            Problem,
            "the file system of the store is mounted without barriers, so fsync does not survive \
             a power cut; mount it with 'barrier'",
        )
    } else if has("sync") || has("dirsync") {
        (
            Advice,
            "the file system of the store is mounted with 'sync', which makes every write wait; \
             ShaleFS syncs by itself, mount it with 'async'",
        )
    } else if store
        .backing_options
        .iter()
        .any(|option| option.starts_with("compress=") || option.starts_with("compress-force="))
    {
        (
            Advice,
            "the file system of the store compresses too, which costs time and gains nothing; \
             'chattr +m' on the store, or mount it without compress",
        )
    } else {
        (Ok, "nothing against them")
    };
    Check::new("backing options", verdict, finding)
}

/// Whether nothing is written to the store: it is mounted read-only, or its file system is.
fn is_only_read(store: &Store) -> bool {
    let options = match &store.mount {
        Some(mount) => &mount.options,
        None => &store.backing_options,
    };
    options.iter().any(|option| option == "ro")
}

fn space(store: &Store) -> Check {
    if is_only_read(store) {
        return Check::new("space", Ok, "none is needed: nothing is written");
    }
    let (free, total) = (size::human(store.available), size::human(store.total));
    let (verdict, finding) = if store.available < 2 * shale_store::reserve(store.total) {
        (
            Problem,
            format!(
                "only {free} of {total} free: writes answer ENOSPC; delete files, then \
                 'shale gc --wait', or enlarge the device"
            ),
        )
    } else if store.available < store.total / 20 {
        (
            Advice,
            format!(
                "{free} of {total} free, less than a twentieth; make room before it is full, \
                 'shale gc --wait' gives back what deleted files still take"
            ),
        )
    } else {
        (Ok, format!("{free} of {total} free"))
    };
    Check::new("space", verdict, finding)
}

fn inodes(store: &Store) -> Check {
    if is_only_read(store) {
        return Check::new("inodes", Ok, "none are needed: nothing is written");
    }
    let (all, free) = store.inodes;
    if all > 0 && free < 1000 {
        return Check::new(
            "inodes",
            Problem,
            format!(
                "inodes are running out on the device, {free} of {all} are left, and packs and the \
                 index need some; delete small files that are there beside the store"
            ),
        );
    }
    Check::new("inodes", Ok, "enough")
}

fn privacy(store: &Store) -> Check {
    if store.mode & 0o077 != 0 {
        return Check::new(
            "privacy",
            Advice,
            format!(
                "others may enter the store, where permissions of the files in it do not count; \
                 'chmod 700 {}'",
                store.path.display()
            ),
        );
    }
    Check::new("privacy", Ok, "only its owner may enter the store")
}

fn clock(machine: &Machine, store: &Store) -> Check {
    let set = "set it, and keep it right with NTP ('timedatectl set-ntp true')";
    let (verdict, finding) = if machine.now < THIS_PROGRAM {
        (
            Problem,
            format!("the clock is wrong: it is before 2025; {set}"),
        )
    } else if store.newest > machine.now + CLOCK_SKEW {
        let behind = (store.newest - machine.now) / 60;
        let behind = counted(behind, "minute", "minutes");
        (
            Problem,
            format!(
                "the clock is {behind} behind the latest change of the store, so times of \
                 files will go backwards; {set}"
            ),
        )
    } else {
        (Ok, "not behind the store".to_owned())
    };
    Check::new("clock", verdict, finding)
}

fn log(log: &Log, store: &Path, only_read: bool) -> Check {
    let (verdict, finding) = match log {
        Log::Read(
            path,
            Lines {
                damage: Some(line), ..
            },
        ) => (
            Problem,
            format!(
                "{} tells of damaged data, the last time: {line}; unmount the store and list what \
                 is damaged with 'shale fsck {}', restore it from a copy, then empty the log",
                path.display(),
                store.display()
            ),
        ),
        Log::Read(path, Lines { warnings: 0, .. }) => {
            (Ok, format!("no warnings in {}", path.display()))
        }
        Log::Read(path, Lines { warnings, .. }) => (
            Advice,
            format!(
                "{} at the end of {}; read them, then empty the file",
                counted(*warnings, "warning", "warnings"),
                path.display()
            ),
        ),
        Log::Elsewhere(_, path) if path == Path::new("/dev/null") && only_read => (
            Advice,
            "a read-only mount has no log of its own in the store; mount with --log FILE to see \
             warnings"
                .to_owned(),
        ),
        Log::Elsewhere(_, path) if path == Path::new("/dev/null") => (
            Advice,
            "the daemon has no log, because it could not write one into the store; mount with \
             --log FILE"
                .to_owned(),
        ),
        Log::Elsewhere(pid, path) if path.to_string_lossy().starts_with("socket:") => (
            Advice,
            format!(
                "not looked at: the daemon of a service logs to the journal; read it with \
                 'journalctl _PID={pid}'"
            ),
        ),
        Log::Elsewhere(_, path) => (
            Advice,
            format!(
                "not looked at: the daemon logs to {}; read it there, or mount with --log FILE",
                path.display()
            ),
        ),
        Log::Hidden => (
            Advice,
            "not looked at: where the daemon logs can be seen by root and who mounted".to_owned(),
        ),
    };
    Check::new("log", verdict, finding)
}

fn data(mount: &Mounted) -> Option<Check> {
    let damaged = mount.damaged.as_ref()?;
    let (verdict, finding) = if damaged.count == 0 {
        (
            Ok,
            "all that was read since the mount began was as it should be".to_owned(),
        )
    } else {
        let named = damaged.files.iter().take(SHOWN);
        let mut files: Vec<String> = named
            .map(|file| {
                let path = mount.mountpoint.join(&file.path);
                format!(
                    "{} (offset {}: {})",
                    path.display(),
                    file.offset,
                    file.error
                )
            })
            .collect();
        let more = damaged.count.saturating_sub(files.len() as u64);
        if more > 0 {
            files.push(format!("{more} more"));
        }
        (
            Problem,
            format!(
                "{} cannot be read everywhere: {}; restore from a copy, or keep the rest with \
                 'shale export --salvage'; 'shale fsck' of the unmounted store finds all there is",
                counted(damaged.count, "file", "files"),
                files.join(", ")
            ),
        )
    };
    Some(Check::new("data", verdict, finding))
}

fn daemon(mount: &Mounted) -> Check {
    let mountpoint = mount.mountpoint.display();
    let (verdict, finding) = match &mount.daemon {
        _ if mount.dead => (
            Problem,
            format!(
                "the daemon has died; clear the mount with 'shale unmount {mountpoint}' and mount \
                 again, nothing that was synced is lost"
            ),
        ),
        None => (
            Advice,
            "you may not look at the daemon of this mount; ask again as root or as who mounted it"
                .to_owned(),
        ),
        Some(daemon) if daemon.outdated => (
            Advice,
            format!(
                "process {} runs a program that has been replaced since; unmount and mount again \
                 to use the new one",
                daemon.pid
            ),
        ),
        Some(daemon)
            if daemon
                .open_files
                .is_some_and(|limit| limit < OPEN_FILES_NEEDED) =>
        {
            (
                Problem,
                format!(
                    "process {} may open too few files; raise the limit (nofile) and mount again",
                    daemon.pid
                ),
            )
        }
        Some(daemon) => (
            Ok,
            match daemon.resident {
                Some(bytes) => format!("process {}, {}", daemon.pid, size::human(bytes)),
                None => format!("process {}", daemon.pid),
            },
        ),
    };
    Check::new("daemon", verdict, finding)
}

fn mount_options(machine: &Machine, mount: &Mounted) -> Check {
    let has = |option: &str| mount.options.iter().any(|found| found == option);
    let (verdict, finding) = if has("sync") {
        (
            Advice,
            "sync makes every write wait for the device; leave it out, fsync is enough",
        )
    } else if machine.root && !has("allow_other") {
        (
            Advice,
            "without allow_other only who mounted it can use the mount",
        )
    } else if !has("nodev") || !has("nosuid") {
        (
            Advice,
            "device files and set-id programs in the mount are honoured; leave out allow_dev and \
             allow_suid, or dev and suid, unless they are needed",
        )
    } else {
        (Ok, "nothing against them")
    };
    Check::new("mount options", verdict, finding)
}

#[cfg(test)]
mod tests;
