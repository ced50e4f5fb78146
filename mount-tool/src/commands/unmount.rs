//! `shale unmount`

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use nix::unistd::geteuid;
use shale_fs::live::Displaced;

use crate::attributes;
use crate::backend::{Unmounter, store_files};
use crate::cli::UnmountArgs;
use crate::failure::{Failure, exit, reason};
use crate::holder::{Holder, Left};
use crate::mount_helper;
use crate::mountinfo::{Mount, Mounts};
use crate::paths;
use crate::report::printable;
use crate::utab;
use crate::wait::Waiting;

pub(crate) fn run(args: &UnmountArgs) -> Result<ExitCode, Failure> {
    if args.dead {
        clear(&args.mountpoint)?;
    } else {
        unmount(&args.mountpoint)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Unmounts, and waits until the daemon has gone.
pub(crate) fn unmount(mountpoint: &Path) -> Result<(), Failure> {
    match end(mountpoint)? {
        Ended::Durable => Ok(()),
        Ended::Elsewhere { other, .. } => Err(Failure::new(
            exit::BUSY,
            format_args!(
                "{} is unmounted, but the same file system is still mounted on {}; unmount that \
                 too",
                mountpoint.display(),
                other.display()
            ),
        )),
    }
}

/// Unmounts what a dead daemon has left, if that is what is there.
fn clear(mountpoint: &Path) -> Result<(), Failure> {
    let absolute = paths::absolute(mountpoint).map_err(|e| Failure::io("find", mountpoint, &e))?;
    match Mounts::read()?.at(&absolute) {
        Some(mount) if mount.is_shale() && paths::is_dead_mount(&absolute) => unmount(mountpoint),
        _ => Ok(()),
    }
}

/// For umount(8), which has succeeded when the mount is gone from there, as with any file system
/// that is also mounted elsewhere.
pub(crate) fn run_helper(wanted: &mount_helper::Unmount) -> Result<ExitCode, Failure> {
    if wanted.lazy {
        detach(&find(&wanted.mountpoint, &Mounts::read()?)?, true)?;
    } else if let Ended::Elsewhere { part: false, other } = end(&wanted.mountpoint)? {
        eprintln!(
            "shale: not waiting until everything is durable: the file system is still mounted on {}",
            printable(&other.display().to_string())
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// How a mount has ended.
enum Ended {
    /// The daemon has gone, and everything is durable.
    Durable,
    /// The daemon serves it elsewhere too; what has ended may have shown a part of it only.
    Elsewhere { part: bool, other: PathBuf },
}

/// Unmounts, and waits until the daemon has gone if nothing else shows its file system.
fn end(mountpoint: &Path) -> Result<Ended, Failure> {
    let mount = find(mountpoint, &Mounts::read()?)?;
    let dead = paths::is_dead_mount(&mount.mountpoint);
    let reader = Holder::reader(&mount, dead);
    let holder = reader
        .or_else(|| Holder::of(&mount.source, dead))
        .or_else(|| holder_out_of_sight(&mount, dead));
    let removed = !dead && is_removed(&mount);
    detach(&mount, dead)?;
    let Some(holder) = holder else {
        return if dead {
            Ok(Ended::Durable)
        } else {
            Err(unseen(&mount, "its store cannot be read"))
        };
    };
    if let Some(other) = Mounts::read()?.showing(&mount) {
        return Ok(Ended::Elsewhere {
            part: mount.is_part(),
            other: other.mountpoint.clone(),
        });
    }
    let _waiting = Waiting::for_("waiting until everything is durable".to_owned());
    let left = holder
        .wait()
        .map_err(|e| unseen(&mount, &reason(&e.into())))?;
    if removed {
        return Err(Failure::new(
            exit::IO,
            format_args!(
                "{} is unmounted, but its store {} had been removed: nothing of it is kept; \
                 restore the store from a copy",
                mount.mountpoint.display(),
                mount.source.display()
            ),
        ));
    }
    if let Left::Otherwise(said) = left
        && !dead
    {
        let files: String = said.lines().map(|line| format!("; {line}")).collect();
        return Err(Failure::new(
            exit::IO,
            format_args!(
                "{} is unmounted, but not everything has become durable: what had been synced \
                 is safe; see the log of the daemon and check the device of the store{files}",
                mount.mountpoint.display()
            ),
        ));
    }
    Ok(Ended::Durable)
}

/// Whether the daemon has nothing left that it could keep changes in.
fn is_removed(mount: &Mount) -> bool {
    let superblock = mount.source.join(store_files::SUPERBLOCK);
    !mount.is_read_only()
        && superblock.symlink_metadata().is_err()
        && attributes::live(&mount.mountpoint)
            .is_some_and(|live| live.displaced == Some(Displaced::Removed))
}

/// Where the store's path leads elsewhere by now, the mount itself tells who serves it.
fn holder_out_of_sight(mount: &Mount, dead: bool) -> Option<Holder> {
    if dead {
        return None;
    }
    Holder::of_process(attributes::server(&mount.mountpoint)?)
}

fn find(path: &Path, mounts: &Mounts) -> Result<Mount, Failure> {
    let absolute = paths::absolute(path).map_err(|e| Failure::io("find", path, &e))?;
    match mounts.at(&absolute) {
        Some(mount) if mount.is_shale() => Ok(mount.clone()),
        Some(mount) => Err(Failure::new(
            exit::NO_INPUT,
            format_args!(
                "{0} is a mount of type {1}, not a ShaleFS mount; use 'umount {0}'",
                absolute.display(),
                mount.file_system
            ),
        )),
        None => Err(not_a_mount(&absolute, mounts)),
    }
}

fn not_a_mount(path: &Path, mounts: &Mounts) -> Failure {
    let shown = path.display();
    let advice = if let Some(mount) = mounts.of_store(path) {
        format!(
            "it is a store; unmount it with 'shale unmount {}'",
            mount.mountpoint.display()
        )
    } else if let Some(mount) = mounts.holding(path).filter(|mount| mount.is_shale()) {
        format!(
            "it is inside one; use 'shale unmount {}'",
            mount.mountpoint.display()
        )
    } else if path.symlink_metadata().is_err() {
        "it does not exist".to_owned()
    } else {
        "see 'findmnt -t fuse.shale' for those there are".to_owned()
    };
    Failure::new(
        exit::NO_INPUT,
        format_args!("{shown} is not a mount point; {advice}"),
    )
}

/// Unmounts; `lazy` also where files are open. Nobody can use what a dead daemon left, so whoever
/// still sits in that loses nothing.
fn detach(mount: &Mount, lazy: bool) -> Result<(), Failure> {
    let unmounter = Unmounter::at(mount.mountpoint.clone());
    let ended = if lazy {
        unmounter.detach()
    } else {
        let _waiting = Waiting::for_("waiting for programs that use it".to_owned());
        unmounter.unmount()
    };
    let root = geteuid().is_root();
    match ended {
        Ok(()) => {
            if root {
                // A daemon that lives does it too. What stays is about nothing and does no harm.
                let _ = utab::unmark(&mount.source, &mount.mountpoint);
            }
            Ok(())
        }
        Err(e) => Err(match e.kind() {
            ErrorKind::ResourceBusy => busy(mount),
            ErrorKind::PermissionDenied => no_permission(mount),
            ErrorKind::NotFound if !root => no_fusermount(),
            _ => refused(mount, &reason(&e)),
        }),
    }
}

fn no_fusermount() -> Failure {
    Failure::new(
        exit::UNAVAILABLE,
        "fusermount3 is not installed and only root can unmount without it; install the package \
         fuse3",
    )
}

fn busy(mount: &Mount) -> Failure {
    Failure::new(
        exit::BUSY,
        format_args!(
            "{0} is busy: a program has a file open or its working directory there; find it with \
             'fuser -vm {0}' or 'lsof +f -- {0}', end it, and try again",
            mount.mountpoint.display()
        ),
    )
}

fn unseen(mount: &Mount, why: &str) -> Failure {
    Failure::new(
        exit::IO,
        format_args!(
            "{} is unmounted, but cannot see whether the daemon has finished: {why}",
            mount.mountpoint.display()
        ),
    )
}

fn no_permission(mount: &Mount) -> Failure {
    Failure::new(
        exit::NO_PERMISSION,
        format_args!(
            "{} was not mounted by you; only root or who mounted it can unmount it",
            mount.mountpoint.display()
        ),
    )
}

fn refused(mount: &Mount, why: &str) -> Failure {
    Failure::new(
        exit::IO,
        format_args!("cannot unmount {}: {why}", mount.mountpoint.display()),
    )
}
