//! Mount points that cannot be used.

use std::fs::{self};

use shale_tests::{Case, Outcome, ensure, shale};

use crate::{mount_refused, names, refused};

pub(crate) fn mountpoint_that_does_not_exist(case: &Case) -> Outcome {
    let mountpoint = case.work().join("nowhere");
    names(
        &mount_refused(case, &[], &case.work().join("store"), &mountpoint)?,
        &mountpoint,
    )
}

pub(crate) fn mountpoint_that_is_a_file(case: &Case) -> Outcome {
    let mountpoint = case.work().join("file");
    fs::write(&mountpoint, b"x")?;
    names(
        &mount_refused(case, &[], &case.work().join("store"), &mountpoint)?,
        &mountpoint,
    )
}

pub(crate) fn mountpoint_that_is_not_empty(case: &Case) -> Outcome {
    let mountpoint = case.dir("mnt")?;
    fs::write(mountpoint.join("file"), b"x")?;
    names(
        &mount_refused(case, &[], &case.work().join("store"), &mountpoint)?,
        &mountpoint,
    )
}

pub(crate) fn mountpoint_that_is_busy(case: &Case) -> Outcome {
    let mut mount = case.mount("first", &[])?;
    let store = case.work().join("second.store");
    let message = refused(shale().arg("mount").arg(&store).arg(mount.path()).run()?)?;
    names(&message, mount.path())?;
    ensure!(!store.exists(), "the refused store was created");
    fs::write(mount.path().join("file"), b"still works")?;
    mount.unmount()
}

pub(crate) fn mountpoint_inside_the_store(case: &Case) -> Outcome {
    let store = case.dir("store")?;
    mount_refused(case, &[], &store, &store)?;
    let inside = case.dir("outer")?.join("inner");
    fs::create_dir(&inside)?;
    mount_refused(case, &[], &case.work().join("outer"), &inside)?;
    Ok(())
}
