//! Checks of a store and its log.

use std::path::Path;

use super::Check;
use super::Verdict::{Advice, Ok, Problem};
use crate::commands::doctor::facts::{Closed, Lines, Log, MachineFacts, StoreFacts};
use crate::output::report::counted;
use crate::output::size;

/// The beginning of 2025. An earlier clock is wrong.
const THIS_PROGRAM: u64 = 1_735_689_600;
/// How far the clocks of two machines may differ.
const CLOCK_SKEW: u64 = 300;

pub(super) fn format(store: &StoreFacts) -> Check {
    match &store.format {
        Result::Ok(()) => Check::new(
            "store",
            Ok,
            format!("{} has a known format", store.path.display()),
        ),
        Err(why) => Check::new("store", Problem, why.clone()),
    }
}

pub(super) fn entry(closed: &Closed) -> Check {
    Check::new(
        "store",
        Advice,
        format!(
            "you may not look into {}; run this as root or as the user who mounted it",
            closed.store.display()
        ),
    )
}

pub(super) fn backing(store: &StoreFacts) -> Check {
    let kind = store.backing.as_str();
    let (verdict, finding) = match kind {
        "ext4" | "xfs" | "btrfs" | "lustre" | "zfs" | "bcachefs" | "f2fs" | "gpfs" => {
            (Ok, kind.to_owned())
        }
        "squashfs" | "erofs" | "iso9660" => (Ok, format!("{kind}; mount the store with --ro")),
        "tmpfs" | "ramfs" => (
            Problem,
            format!("{kind}: a reboot deletes everything; move the store to a disk"),
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
                "{kind}: two machines may not see each other's lock, and fsync may be slow; make sure \
                 that only one machine mounts the store, or all of them with --ro; prefer a local disk \
                 or Lustre"
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
                "'{other}' is not tested; make sure that its fsync is durable and its rename replaces \
                 files atomically"
            ),
        ),
    };
    Check::new("backing", verdict, finding)
}

pub(super) fn backing_options(store: &StoreFacts) -> Check {
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
            "the file system of the store has become read-only while the store was mounted, so all \
             writes fail; find out why with 'dmesg', and remount it writable",
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
            "the file system of the store is mounted with 'sync', which makes every write wait; mount \
             it with 'async', because ShaleFS syncs by itself",
        )
    } else if store
        .backing_options
        .iter()
        .any(|option| option.starts_with("compress=") || option.starts_with("compress-force="))
    {
        (
            Advice,
            "the file system of the store also compresses, which costs time and gains nothing; run \
             'chattr +m' on the store, or mount its file system without compress",
        )
    } else {
        (Ok, "good")
    };
    Check::new("backing options", verdict, finding)
}

/// Whether nothing is written to the store: it, or its file system, is mounted read-only.
pub(super) fn is_only_read(store: &StoreFacts) -> bool {
    let options = match &store.mount {
        Some(mount) => &mount.options,
        None => &store.backing_options,
    };
    options.iter().any(|option| option == "ro")
}

pub(super) fn space(store: &StoreFacts) -> Check {
    if is_only_read(store) {
        return Check::new("space", Ok, "not needed: nothing is written");
    }
    let (free, total) = (size::human(store.available), size::human(store.total));
    let (verdict, finding) = if store.available < 2 * shale_store::reserve(store.total) {
        (
            Problem,
            format!(
                "only {free} of {total} free: writes fail with ENOSPC; delete files, then run 'shale gc \
                 --wait', or enlarge the device"
            ),
        )
    } else if store.available < store.total / 20 {
        (
            Advice,
            format!(
                "{free} of {total} free, less than 5 %; free some space: 'shale gc --wait' frees that of \
                 deleted files"
            ),
        )
    } else {
        (Ok, format!("{free} of {total} free"))
    };
    Check::new("space", verdict, finding)
}

pub(super) fn inodes(store: &StoreFacts) -> Check {
    if is_only_read(store) {
        return Check::new("inodes", Ok, "not needed: nothing is written");
    }
    let (all, free) = store.inodes;
    if all > 0 && free < 1000 {
        return Check::new(
            "inodes",
            Problem,
            format!(
                "the device is running out of inodes, {free} of {all} are left, and packs and the index \
                 need some; delete small files beside the store"
            ),
        );
    }
    Check::new("inodes", Ok, "enough")
}

pub(super) fn privacy(store: &StoreFacts) -> Check {
    if store.mode & 0o077 != 0 {
        return Check::new(
            "privacy",
            Advice,
            format!(
                "other users may enter the store, where the permissions of its files are not checked; \
                 run 'chmod 700 {}'",
                store.path.display()
            ),
        );
    }
    Check::new("privacy", Ok, "only its owner may enter the store")
}

pub(super) fn clock(machine: &MachineFacts, store: &StoreFacts) -> Check {
    let set = "set it, and keep it in sync with NTP ('timedatectl set-ntp true')";
    let (verdict, finding) = if machine.now < THIS_PROGRAM {
        (
            Problem,
            format!("the clock is wrong: it shows a time before 2025; {set}"),
        )
    } else if store.newest > machine.now + CLOCK_SKEW {
        let behind = (store.newest - machine.now) / 60;
        let behind = counted(behind, "minute", "minutes");
        (
            Problem,
            format!(
                "the clock is {behind} behind the latest change of the store, so times of files will \
                 go backwards; {set}"
            ),
        )
    } else {
        (Ok, "not behind the store".to_owned())
    };
    Check::new("clock", verdict, finding)
}

pub(super) fn log(log: &Log, store: &Path, only_read: bool) -> Check {
    let (verdict, finding) = match log {
        Log::Read(
            path,
            Lines {
                damage: Some(line), ..
            },
        ) => (
            Problem,
            format!(
                "{} reports damaged data, most recently: {line}; unmount the store, list what is \
                 damaged with 'shale fsck {}', restore it from a copy, then empty the log",
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
            "a read-only mount writes no log to the store; mount with --log FILE to see warnings"
                .to_owned(),
        ),
        Log::Elsewhere(_, path) if path == Path::new("/dev/null") => (
            Advice,
            "the daemon has no log, because it could not write one to the store; mount with --log FILE"
                .to_owned(),
        ),
        Log::Elsewhere(pid, path) if path.to_string_lossy().starts_with("socket:") => (
            Advice,
            format!(
                "not checked: the daemon of a service logs to the journal; read it with 'journalctl \
                 _PID={pid}'"
            ),
        ),
        Log::Elsewhere(_, path) => (
            Advice,
            format!(
                "not checked: the daemon logs to {}; read it there, or mount with --log FILE",
                path.display()
            ),
        ),
        Log::Hidden => (
            Advice,
            "not checked: run this as root or as the user who mounted it to see where the daemon logs"
                .to_owned(),
        ),
    };
    Check::new("log", verdict, finding)
}
