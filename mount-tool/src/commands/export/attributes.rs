//! Owner, permissions, extended attributes and times of a copy.

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, lchown};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, XattrFlags, utimensat};
use rustix::io::Errno;

use super::copy::cannot_write;
use super::source::{Kind, Node, Time};
use crate::output::failure::Failure;

/// Sets owner, permissions, attributes and times of a copy. Adds the names of attributes that the
/// target's file system does not support to `missed`. Messages name `target`.
pub(crate) fn give(
    node: &Node,
    path: &Path,
    target: &Path,
    missed: &mut BTreeSet<String>,
) -> Result<(), Failure> {
    let failed = |e: io::Error| cannot_write(target, &e);
    let root = nix::unistd::geteuid().is_root();
    // The owner first: changing it clears set-id bits and capabilities.
    if root {
        lchown(path, Some(node.owner.0), Some(node.owner.1)).map_err(failed)?;
    }
    if !matches!(node.kind, Kind::Symlink(_)) {
        let permissions = Permissions::from_mode(node.mode);
        std::fs::set_permissions(path, permissions).map_err(failed)?;
    }
    for (name, value) in &node.xattrs {
        let privileged =
            name.as_bytes().starts_with(b"trusted.") || name.as_bytes().starts_with(b"security.");
        if privileged && !root {
            missed.insert(name.to_string_lossy().into_owned());
            continue;
        }
        match rustix::fs::lsetxattr(path, name, value, XattrFlags::empty()) {
            Ok(()) => {}
            Err(Errno::NOTSUP | Errno::PERM | Errno::NOSPC | Errno::TOOBIG) => {
                missed.insert(name.to_string_lossy().into_owned());
            }
            Err(e) => return Err(failed(e.into())),
        }
    }
    times(node, path).map_err(failed)
}

/// Removes the access control lists that a new file or directory inherited.
pub(crate) fn disinherit(path: &Path) -> io::Result<()> {
    for list in ["system.posix_acl_access", "system.posix_acl_default"] {
        match rustix::fs::lremovexattr(path, list) {
            // A file has no default list.
            Ok(()) | Err(Errno::NODATA | Errno::NOTSUP | Errno::ACCESS) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Sets the times.
pub(crate) fn times(node: &Node, path: &Path) -> io::Result<()> {
    let time = |(seconds, nanoseconds): Time| Timespec {
        tv_sec: seconds,
        tv_nsec: i64::from(nanoseconds),
    };
    let times = Timestamps {
        last_access: time(node.accessed),
        last_modification: time(node.modified),
    };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(())
}
