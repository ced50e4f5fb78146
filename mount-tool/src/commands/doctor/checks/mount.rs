//! Checks of a mount and its daemon.

use shale_fs::stats::Displaced;

use super::Check;
use super::Verdict::{Advice, Ok, Problem};
use super::machine::OPEN_FILES_NEEDED;
use crate::commands::doctor::facts::{Absent, MachineFacts, MountFacts};
use crate::output::report::counted;
use crate::output::size;

/// Most damaged files that are named.
const SHOWN: usize = 20;

/// A store that was moved or removed while it was mounted.
pub(super) fn displaced(absent: &Absent) -> Check {
    let (store, mountpoint) = (absent.store.display(), absent.mount.mountpoint.display());
    let (verdict, finding) = match &absent.how {
        Some(Displaced::Removed) => (
            Problem,
            format!(
                "{store}, or an essential part of it, was removed while it was mounted: nothing that is \
                 written can become durable. Copy what can still be read out of {mountpoint}, then \
                 'shale unmount {mountpoint}' and restore the store from a copy"
            ),
        ),
        Some(Displaced::Moved(path)) => (
            Advice,
            format!(
                "the store was moved from {store} to {path}, and the mount keeps using it; move it \
                 back, or 'shale unmount {mountpoint}' and mount it from there"
            ),
        ),
        Some(Displaced::OutOfSight) => (
            Advice,
            format!(
                "the store is no longer at {store}: its file system was unmounted, or another one was \
                 mounted over it. The mount keeps using it; 'shale unmount {mountpoint}', then mount \
                 that file system again"
            ),
        ),
        None => (
            Problem,
            format!(
                "there is no store at {store} any more; run this as root or as the user who mounted it \
                 to ask the daemon where it is"
            ),
        ),
    };
    Check::new("store", verdict, finding)
}

pub(super) fn data(mount: &MountFacts) -> Option<Check> {
    let damaged = mount.damaged.as_ref()?;
    let (verdict, finding) = if damaged.count == 0 {
        (
            Ok,
            "everything that was read since the mount began was intact".to_owned(),
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
                "{} with damaged data: {}; restore them from a copy, or save the rest with 'shale export \
                 --salvage'; 'shale fsck' of the unmounted store finds all damage",
                counted(damaged.count, "file", "files"),
                files.join(", ")
            ),
        )
    };
    Some(Check::new("data", verdict, finding))
}

pub(super) fn daemon(mount: &MountFacts) -> Check {
    let mountpoint = mount.mountpoint.display();
    let (verdict, finding) = match &mount.daemon {
        _ if mount.dead => (
            Problem,
            format!(
                "the daemon has died; clear the mount with 'shale unmount {mountpoint}' and mount \
                 again. Nothing that was synced is lost"
            ),
        ),
        None => (
            Advice,
            "you may not examine the daemon of this mount; run this as root or as the user who mounted \
             it"
                .to_owned(),
        ),
        Some(daemon) if daemon.outdated => (
            Advice,
            format!(
                "process {} runs a program that was replaced since; unmount and mount again to use the \
                 new one",
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

pub(super) fn mount_options(machine: &MachineFacts, mount: &MountFacts) -> Check {
    let has = |option: &str| mount.options.iter().any(|found| found == option);
    let (verdict, finding) = if has("sync") {
        (
            Advice,
            "sync makes every write wait for the device; leave it out, fsync is enough",
        )
    } else if machine.root && !has("allow_other") {
        (
            Advice,
            "only the user who mounted it can use the mount; add allow_other to let others use it",
        )
    } else if !has("nodev") || !has("nosuid") {
        (
            Advice,
            "the mount honours device files and set-id programs; leave out allow_dev and allow_suid, \
             or dev and suid, unless you need them",
        )
    } else {
        (Ok, "good")
    };
    Check::new("mount options", verdict, finding)
}
