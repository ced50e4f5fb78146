//! The checks before a mount. They create nothing.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{AccessFlags, eaccess};
use rustix::fs::{StatVfsMountFlags, statvfs};

use crate::output::failure::{Failure, exit, mount_exit, reason};
use crate::system::mountinfo::Mounts;
use crate::system::paths;
use crate::system::store_dir;

/// Store and mount point of a mount: checked, and absolute.
#[derive(Debug)]
pub(crate) struct MountPaths {
    pub(crate) store: PathBuf,
    pub(crate) mountpoint: PathBuf,
    /// The store has to be created.
    pub(crate) store_missing: bool,
}

/// The user's request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Intent {
    pub(crate) root: bool,
    pub(crate) read_only: bool,
    pub(crate) allow_other: bool,
    /// Do not create a missing store.
    pub(crate) nocreate: bool,
}

/// Checks the machine, the store and the mount point.
pub(crate) fn check(
    store: &Path,
    mountpoint: &Path,
    intent: Intent,
) -> Result<MountPaths, Failure> {
    let (store, store_missing) = check_store(store, intent)?;
    let mountpoint = check_mountpoint(mountpoint, &Mounts::read()?, intent)?;
    if mountpoint.starts_with(&store) {
        return Err(failed(format_args!(
            "mount point {} is inside the store {}; choose a directory elsewhere",
            mountpoint.display(),
            store.display()
        )));
    }
    if store.starts_with(&mountpoint) {
        return Err(failed(format_args!(
            "store {} is inside the mount point {} and would be hidden; choose a directory elsewhere",
            store.display(),
            mountpoint.display()
        )));
    }
    check_fuse(intent)?;
    Ok(MountPaths {
        store,
        mountpoint,
        store_missing,
    })
}

fn failed(message: impl std::fmt::Display) -> Failure {
    Failure::new(mount_exit::FAILED, message)
}

fn denied(message: impl std::fmt::Display) -> Failure {
    Failure::new(mount_exit::USAGE, message)
}

fn check_store(store: &Path, intent: Intent) -> Result<(PathBuf, bool), Failure> {
    let metadata = match paths::metadata(store) {
        Ok(metadata) => metadata,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return missing_store(store, intent),
        Err(e) if paths::is_dead(&e) => {
            return Err(failed(format_args!(
                "store {0} is a mount whose daemon has died; clear it with 'shale unmount {0}' \
                 if it is a ShaleFS mount",
                store.display()
            )));
        }
        Err(e) => return Err(store_error(store, &e)),
    };
    if !metadata.is_dir() {
        return Err(failed(format_args!(
            "store {} is {}, not a directory; give a directory, or a new name",
            store.display(),
            kind(&metadata)
        )));
    }
    let path = paths::absolute(store).map_err(|e| store_error(store, &e))?;
    let needed = AccessFlags::R_OK | AccessFlags::X_OK;
    if let Err(e) = eaccess(&path, needed) {
        return Err(store_error(&path, &e.into()));
    }
    let is_store = store_dir::is_store(&path);
    if !is_store {
        let strangers = strangers(&path).map_err(|e| store_error(&path, &e))?;
        if let Some(name) = strangers {
            return Err(failed(format_args!(
                "{} is not empty and is not a ShaleFS store (it holds '{}'); give an empty \
                 directory, or a new name",
                path.display(),
                name.to_string_lossy()
            )));
        }
        if intent.nocreate {
            return Err(no_store(&path, "is empty"));
        }
        if intent.read_only {
            return Err(failed(format_args!(
                "{} is empty, and a read-only mount cannot create a store; mount it without ro first",
                path.display()
            )));
        }
    }
    // Before anything in it is touched.
    shale_store::check_superblock(&path).map_err(failed)?;
    if !intent.read_only {
        let advice = if is_store {
            "mount it with --ro to read from it"
        } else {
            "choose another directory"
        };
        check_writable(&path, "store", advice)?;
    }
    Ok((path, false))
}

/// The first entry that neither an earlier attempt nor mkfs created.
fn strangers(store: &Path) -> io::Result<Option<std::ffi::OsString>> {
    let expected = [
        store_dir::LOCK,
        store_dir::LOG,
        "superblock.new",
        "lost+found",
    ];
    for entry in std::fs::read_dir(store)? {
        let name = entry?.file_name();
        if !expected.iter().any(|expected| name == OsStr::new(expected)) {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

fn missing_store(store: &Path, intent: Intent) -> Result<(PathBuf, bool), Failure> {
    if store.symlink_metadata().is_ok() {
        return Err(failed(format_args!(
            "store {} is a symbolic link to nowhere; remove it or create its target",
            store.display()
        )));
    }
    if intent.nocreate {
        return Err(no_store(store, "does not exist"));
    }
    if intent.read_only {
        return Err(failed(format_args!(
            "store {} does not exist, and a read-only mount cannot create it; check the path",
            store.display()
        )));
    }
    let parent = paths::parent(store);
    match std::fs::metadata(parent) {
        Ok(metadata) if metadata.is_dir() => {}
        Ok(_) => {
            return Err(failed(format_args!(
                "{} is not a directory; check the path",
                parent.display()
            )));
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Err(failed(format_args!(
                "neither store {} nor its parent directory exists; check the path or create {}",
                store.display(),
                parent.display()
            )));
        }
        Err(e) => return Err(store_error(store, &e)),
    }
    let path = paths::absolute(store).map_err(|e| store_error(store, &e))?;
    let what = format!("store {} cannot be created: directory", path.display());
    check_writable(paths::parent(&path), &what, "choose another directory")?;
    Ok((path, true))
}

fn no_store(store: &Path, what: &str) -> Failure {
    failed(format_args!(
        "store {} {what}, and nocreate is set; check that its file system is mounted, or mount once \
         without nocreate to create it",
        store.display()
    ))
}

/// `advice` says what to do about a read-only file system.
fn check_writable(directory: &Path, what: &str, advice: &str) -> Result<(), Failure> {
    let read_only = statvfs(directory).is_ok_and(|s| s.f_flag.contains(StatVfsMountFlags::RDONLY));
    match eaccess(directory, AccessFlags::W_OK | AccessFlags::X_OK) {
        Err(Errno::EROFS) => Err(read_only_failure(directory, what, advice)),
        Ok(()) if read_only => Err(read_only_failure(directory, what, advice)),
        Ok(()) => Ok(()),
        Err(e) if e == Errno::EACCES || e == Errno::EPERM => Err(denied(format_args!(
            "you may not write to {what} {}; change its permissions or choose another directory",
            directory.display()
        ))),
        Err(e) => Err(store_error(directory, &e.into())),
    }
}

fn read_only_failure(directory: &Path, what: &str, advice: &str) -> Failure {
    failed(format_args!(
        "{what} {} is on a read-only file system; {advice}",
        directory.display()
    ))
}

fn store_error(store: &Path, error: &io::Error) -> Failure {
    let failure = Failure::io("use store", store, error);
    let status = match failure.status {
        exit::NO_PERMISSION => mount_exit::USAGE,
        _ => mount_exit::FAILED,
    };
    failure.with_status(status)
}

fn check_mountpoint(path: &Path, mounts: &Mounts, intent: Intent) -> Result<PathBuf, Failure> {
    let metadata = match paths::metadata(path) {
        Ok(metadata) => metadata,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Err(failed(format_args!(
                "mount point {0} does not exist; create it with 'mkdir {0}'",
                path.display()
            )));
        }
        Err(e) if paths::is_dead(&e) => {
            return Err(failed(format_args!(
                "mount point {0} still has a mount whose daemon has died; clear it with 'shale \
                 unmount {0}'",
                path.display()
            )));
        }
        Err(e) => {
            let failure = Failure::io("use mount point", path, &e);
            return Err(failure.with_status(mount_exit::FAILED));
        }
    };
    if !metadata.is_dir() {
        return Err(failed(format_args!(
            "mount point {} is {}, not a directory; give an empty directory",
            path.display(),
            kind(&metadata)
        )));
    }
    let unusable =
        |e: &io::Error| Failure::io("use mount point", path, e).with_status(mount_exit::FAILED);
    let path = paths::absolute(path).map_err(|e| unusable(&e))?;
    // An automount point waits for this mount.
    if let Some(mount) = mounts.at(&path).filter(|mount| !mount.is_automount()) {
        let what = if mount.is_shale() {
            format!("the store {}", mount.source.display())
        } else {
            format!("{} ({})", mount.source.display(), mount.file_system)
        };
        return Err(failed(format_args!(
            "mount point {0} is busy: {what} is mounted there; unmount it first or choose \
             another directory",
            path.display()
        )));
    }
    let mut entries = std::fs::read_dir(&path).map_err(|e| unusable(&e))?;
    if entries.next().is_some() {
        return Err(failed(format_args!(
            "mount point {} is not empty, and the mount would hide its files; give an empty directory",
            path.display()
        )));
    }
    if !intent.root && eaccess(&path, AccessFlags::W_OK).is_err() {
        return Err(denied(format_args!(
            "you may not write to mount point {}; choose a directory of your own",
            path.display()
        )));
    }
    Ok(path)
}

fn check_fuse(intent: Intent) -> Result<(), Failure> {
    let system = |message: String| Failure::new(mount_exit::SYSTEM, message);
    match std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")
    {
        Ok(_) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Err(system(
                "/dev/fuse does not exist; load the module with 'modprobe fuse', or pass the device \
                 to the container"
                    .to_owned(),
            ));
        }
        Err(e) => {
            return Err(system(format!(
                "cannot open /dev/fuse: {}; ask the administrator for access to FUSE, or pass the \
                 device to the container",
                reason(&e)
            )));
        }
    }
    if intent.root {
        return Ok(());
    }
    if paths::program("fusermount3").is_none() {
        return Err(system(
            "fusermount3 is not installed, and only root can mount without it; install the package \
             fuse3"
                .to_owned(),
        ));
    }
    if intent.allow_other && !user_allow_other() {
        return Err(denied(
            "ordinary users may not set allow_other; leave it out, or ask the administrator to put \
             'user_allow_other' into /etc/fuse.conf",
        ));
    }
    Ok(())
}

fn user_allow_other() -> bool {
    let conf = std::fs::read_to_string("/etc/fuse.conf").unwrap_or_default();
    conf.lines().any(|line| line.trim() == "user_allow_other")
}

fn kind(metadata: &Metadata) -> &'static str {
    let kind = metadata.file_type();
    if kind.is_file() {
        "a file"
    } else if kind.is_block_device() || kind.is_char_device() {
        "a device"
    } else if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "not a directory"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTENT: Intent = Intent {
        root: true,
        read_only: false,
        allow_other: false,
        nocreate: true,
    };

    #[test]
    fn a_store_is_not_made_where_its_file_system_is_missing() {
        let dir = tempfile::tempdir().unwrap();
        let create = Intent {
            nocreate: false,
            ..INTENT
        };
        std::fs::create_dir(dir.path().join("empty")).unwrap();
        // As mkfs leaves it.
        std::fs::create_dir_all(dir.path().join("fresh/lost+found")).unwrap();
        for name in ["missing", "empty", "fresh"] {
            let store = dir.path().join(name);
            let failure = check_store(&store, INTENT).unwrap_err();
            assert_eq!(failure.status, mount_exit::FAILED, "{name}");
            assert!(failure.message().contains("nocreate"), "{failure}");
            assert_eq!(
                check_store(&store, create).unwrap().1,
                name == "missing",
                "{name}"
            );
        }
        let failure = check_store(&dir.path().join("no/store"), INTENT).unwrap_err();
        assert!(failure.message().contains("nocreate"), "{failure}");
    }
}
