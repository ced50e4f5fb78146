//! Stores that cannot be mounted.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use shale_tests::{Case, Cmd, LoopFs, Mount, Outcome, ensure, ensure_eq, same_trees, shale};

use crate::{mount_refused, names, refused, snapshot};

pub(crate) fn store_that_is_a_file(case: &Case) -> Outcome {
    let (store, mountpoint) = (case.work().join("store"), case.dir("mnt")?);
    fs::write(&store, b"a letter")?;
    names(&mount_refused(case, &[], &store, &mountpoint)?, &store)
}

pub(crate) fn store_that_holds_something_else(case: &Case) -> Outcome {
    let (store, mountpoint) = (case.dir("store")?, case.dir("mnt")?);
    fs::write(store.join("thesis.tex"), b"the only copy")?;
    names(&mount_refused(case, &[], &store, &mountpoint)?, &store)
}

/// A store with one file in it.
fn made(case: &Case) -> Outcome<Mount> {
    let mut mount = case.mount("made", &[])?;
    fs::write(mount.path().join("file"), b"contents")?;
    mount.unmount()?;
    Ok(mount)
}

pub(crate) fn store_of_an_unknown_version(case: &Case) -> Outcome {
    let mount = made(case)?;
    let superblock = mount.store().join("superblock");
    let original = fs::read(&superblock)?;
    // Any later version carries a valid checksum that we cannot make here; whatever
    // byte holds the version, none of these may be mounted, and none may be touched.
    let mut refusals = 0;
    for position in 0..original.len().min(24) {
        let mut bytes = original.clone();
        bytes[position] = bytes[position].wrapping_add(1);
        fs::write(&superblock, &bytes)?;
        mount_refused(case, &[], mount.store(), mount.path())?;
        refused_fsck(case, mount.store())?;
        refusals += 1;
    }
    ensure!(
        refusals >= 8,
        "the superblock has only {} bytes",
        original.len()
    );
    fs::write(&superblock, &original)?;
    mount.fsck_is_clean()
}

fn refused_fsck(case: &Case, store: &Path) -> Outcome {
    let before = snapshot(case)?;
    let finished = shale().arg("fsck").arg(store).run()?;
    ensure!(
        !finished.status.success(),
        "fsck accepts it: {}",
        finished.describe()
    );
    same_trees(&snapshot(case)?, &before)
}

pub(crate) fn store_with_a_damaged_superblock(case: &Case) -> Outcome {
    let mount = made(case)?;
    let superblock = mount.store().join("superblock");
    let original = fs::read(&superblock)?;
    for bytes in [&[][..], &original[..original.len() / 2], &[0xff; 4096]] {
        fs::write(&superblock, bytes)?;
        mount_refused(case, &[], mount.store(), mount.path())?;
    }
    fs::write(&superblock, &original)?;
    mount.fsck_is_clean()
}

pub(crate) fn store_that_is_not_writable(case: &Case) -> Outcome {
    // Root may write everywhere, so another user tries.
    let (store, mountpoint) = (case.dir("store")?, case.dir("mnt")?);
    fs::set_permissions(&mountpoint, Permissions::from_mode(0o777))?;
    // The build directory may be closed to that user.
    let copy = case.work().join("shale");
    fs::copy(shale_tests::binary(), &copy)?;
    let before = snapshot(case)?;
    let finished = Cmd::new(&copy)
        .arg("mount")
        .arg(&store)
        .arg(&mountpoint)
        .user(65_534, 65_534)
        .run()?;
    names(&refused(finished)?, &store)?;
    same_trees(&snapshot(case)?, &before)
}

pub(crate) fn store_on_a_read_only_file_system(case: &Case) -> Outcome {
    let device = case.loop_fs("device", LoopFs::Ext4, 64 << 20)?;
    let mountpoint = case.dir("mnt")?;
    let mut mount = Mount::new(device.path().join("store"), mountpoint.clone(), &[])?;
    fs::write(mount.path().join("file"), b"contents")?;
    mount.unmount()?;
    device.read_only(true)?;
    names(
        &mount_refused(case, &[], mount.store(), &mountpoint)?,
        mount.store(),
    )?;
    let fresh = device.path().join("fresh");
    names(
        &mount_refused(case, &[], &fresh, &mountpoint)?,
        device.path(),
    )
}

pub(crate) fn store_whose_parent_does_not_exist(case: &Case) -> Outcome {
    let mountpoint = case.dir("mnt")?;
    let store = case.work().join("no/such/store");
    names(&mount_refused(case, &[], &store, &mountpoint)?, &store)
}

pub(crate) fn store_that_is_mounted_already(case: &Case) -> Outcome {
    let mut mount = case.mount("first", &[])?;
    fs::write(mount.path().join("file"), b"contents")?;
    let second = case.dir("second")?;
    let message = refused(shale().arg("mount").arg(mount.store()).arg(&second).run()?)?;
    let pid = mount.pid()?;
    ensure!(
        message.contains(&pid.to_string()),
        "the message does not name the holder {pid}: {message}"
    );
    ensure_eq!(
        fs::read_dir(&second)?.count(),
        0,
        "entries of the second mountpoint"
    );
    ensure_eq!(
        fs::read(mount.path().join("file"))?,
        b"contents",
        "the first mount still works"
    );
    mount.unmount()?;
    mount.fsck_is_clean()
}

pub(crate) fn dead_daemon_does_not_lock(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &[])?;
    let old = mount.pid()?;
    mount.kill9()?;
    mount.detach();
    mount.start()?;
    ensure!(mount.pid()? != old, "the lock still names the dead daemon");
    mount.unmount()?;
    mount.fsck_is_clean()
}
