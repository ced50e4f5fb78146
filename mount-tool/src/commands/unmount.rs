//! `shale unmount`

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use nix::unistd::geteuid;
use shale_fs::Unmounter;
use shale_fs::stats::Displaced;

use crate::control;
use crate::mount::holder::{Holder, Shutdown};
use crate::mount::utab;
use crate::output::failure::{Failure, exit, reason};
use crate::output::progress::Spinner;
use crate::output::report::printable;
use crate::system::mountinfo::{Mount, Mounts};
use crate::system::paths;
use crate::system::store_dir;

const HELP: &str = "\
Exit status:
  0 unmounted, or with --dead nothing to clear; 64 wrong usage, 66 not a ShaleFS mount,
  69 no fusermount3, 74 I/O error, 75 busy for more than three seconds, 77 no permission

Examples:
  shale unmount ~/data
  shale unmount --dead ~/data     before mounting again in a script";

#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct UnmountArgs {
    /// Only clear a mount whose daemon has died; leave a working mount alone
    #[arg(long)]
    pub(crate) dead: bool,
    /// Where the store is mounted
    pub(crate) mountpoint: PathBuf,
}

pub(crate) fn run(args: &UnmountArgs) -> Result<ExitCode, Failure> {
    if args.dead {
        clear(&args.mountpoint)?;
    } else {
        unmount(&args.mountpoint)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The options that umount(8) passes to its helper.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct UnmountHelperArgs {
    pub(crate) mountpoint: PathBuf,
    /// Detach it now, do not wait.
    pub(crate) lazy: bool,
}

/// Unmounts, and waits until the daemon has exited.
pub(crate) fn unmount(mountpoint: &Path) -> Result<(), Failure> {
    match end(mountpoint)? {
        MountEnd::Durable => Ok(()),
        MountEnd::Elsewhere { other, .. } => Err(Failure::new(
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

/// Unmounts a mount whose daemon has died; leaves any other alone.
fn clear(mountpoint: &Path) -> Result<(), Failure> {
    let absolute = paths::absolute(mountpoint).map_err(|e| Failure::io("find", mountpoint, &e))?;
    match Mounts::read()?.at(&absolute) {
        Some(mount) if mount.is_shale() && paths::is_dead_mount(&absolute) => unmount(mountpoint),
        _ => Ok(()),
    }
}

/// For umount(8). It succeeds when the mount is gone from there, even if the same file system is
/// mounted elsewhere, as it does for any file system.
pub(crate) fn run_helper(wanted: &UnmountHelperArgs) -> Result<ExitCode, Failure> {
    if wanted.lazy {
        detach(&find(&wanted.mountpoint, &Mounts::read()?)?, true)?;
    } else if let MountEnd::Elsewhere { part: false, other } = end(&wanted.mountpoint)? {
        eprintln!(
            "shale: the file system is still mounted on {}, so not everything is durable yet; unmount \
             that too to wait for it",
            printable(&other.display().to_string())
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// How a mount ended.
enum MountEnd {
    /// The daemon has exited, and everything is durable.
    Durable,
    /// The daemon still serves another mount. The one that ended may have been a part of it.
    Elsewhere { part: bool, other: PathBuf },
}

/// Unmounts. Waits until the daemon has exited unless its file system is mounted elsewhere.
fn end(mountpoint: &Path) -> Result<MountEnd, Failure> {
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
            Ok(MountEnd::Durable)
        } else {
            Err(unseen(&mount, "its store cannot be read"))
        };
    };
    if let Some(other) = Mounts::read()?.showing(&mount) {
        return Ok(MountEnd::Elsewhere {
            part: mount.is_part(),
            other: other.mountpoint.clone(),
        });
    }
    let _spinner = Spinner::new("waiting until everything is durable".to_owned());
    let left = holder
        .wait()
        .map_err(|e| unseen(&mount, &reason(&e.into())))?;
    if removed {
        return Err(Failure::new(
            exit::IO,
            format_args!(
                "{} is unmounted, but its store {} had been removed and its data is lost; restore \
                 the store from a copy",
                mount.mountpoint.display(),
                mount.source.display()
            ),
        ));
    }
    if let Shutdown::Unclean(said) = left
        && !dead
    {
        let files: String = said.lines().map(|line| format!("; {line}")).collect();
        return Err(Failure::new(
            exit::IO,
            format_args!(
                "{} is unmounted, but not everything has become durable: what had been synced \
                 is safe; read the daemon's log and check the device of the store{files}",
                mount.mountpoint.display()
            ),
        ));
    }
    Ok(MountEnd::Durable)
}

/// Whether the store was removed, so that the daemon cannot keep any change.
fn is_removed(mount: &Mount) -> bool {
    let superblock = mount.source.join(store_dir::SUPERBLOCK);
    !mount.is_read_only()
        && superblock.symlink_metadata().is_err()
        && control::stats(&mount.mountpoint)
            .is_some_and(|live| live.displaced == Some(Displaced::Removed))
}

/// When the store is no longer at its path, the mount itself names the process that serves it.
fn holder_out_of_sight(mount: &Mount, dead: bool) -> Option<Holder> {
    if dead {
        return None;
    }
    Holder::of_process(control::server(&mount.mountpoint)?)
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
        "it does not exist; check the path".to_owned()
    } else {
        "'findmnt -t fuse.shale' lists the mounts".to_owned()
    };
    Failure::new(
        exit::NO_INPUT,
        format_args!("{shown} is not a mount point; {advice}"),
    )
}

/// Unmounts; with `lazy` also while files are open. Nothing in a mount without a daemon can be
/// used, so the programs in it lose nothing.
fn detach(mount: &Mount, lazy: bool) -> Result<(), Failure> {
    let unmounter = Unmounter::at(mount.mountpoint.clone());
    let ended = if lazy {
        unmounter.detach()
    } else {
        let _spinner = Spinner::new("waiting for programs that use it".to_owned());
        unmounter.unmount()
    };
    let root = geteuid().is_root();
    match ended {
        Ok(()) => {
            if root {
                // A living daemon does this too. An entry that stays does no harm.
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
            "{} is unmounted, but it is unknown whether everything is durable: {why}; wait until the \
             process has exited, and read its log",
            mount.mountpoint.display()
        ),
    )
}

fn no_permission(mount: &Mount) -> Failure {
    Failure::new(
        exit::NO_PERMISSION,
        format_args!(
            "{} was not mounted by you; ask root or the user who mounted it to unmount it",
            mount.mountpoint.display()
        ),
    )
}

fn refused(mount: &Mount, why: &str) -> Failure {
    Failure::new(
        exit::IO,
        format_args!(
            "cannot unmount {0}: {why}; 'shale doctor {0}' looks for the cause",
            mount.mountpoint.display()
        ),
    )
}
