//! Arguments and paths that commands refuse.

use std::fs::{self, File};

use shale_tests::{Case, LoopFs, Outcome, ensure, ensure_eq, same_trees, shale};

use crate::{mount_refused, names, refused, snapshot};

pub(crate) fn sizes_and_options_out_of_range(case: &Case) -> Outcome {
    let (store, mountpoint) = (case.work().join("store"), case.dir("mnt")?);
    for options in [
        ["--memory", "0"],
        ["--memory", "1K"],
        ["--memory", "-5M"],
        ["--memory", "lots"],
        ["--memory", "99999999999999999999G"],
        ["--memory", "5X"],
        ["--chunk", "0"],
        ["--chunk", "1"],
        ["--chunk", "100000"],
        ["--chunk", "1T"],
        ["--chunk", ""],
        ["--workers", "0"],
        ["--workers", "-1"],
        ["--workers", "1000000"],
        ["--workers", "two"],
        ["-o", "no_such_option"],
        ["-o", "memory=nonsense"],
        ["--log", "/no/such/directory/log"],
        ["--no-such-flag", "x"],
    ] {
        let message = mount_refused(case, &options, &store, &mountpoint)?;
        ensure!(!store.exists(), "{options:?} created the store: {message}");
    }
    Ok(())
}

pub(crate) fn arguments_that_are_missing(case: &Case) -> Outcome {
    let before = snapshot(case)?;
    let store = case.work().join("store");
    for arguments in [
        &["mount"][..],
        &["unmount"],
        &["fsck"],
        &["stat"],
        &["no-such-command"],
    ] {
        let finished = shale().args(arguments).run()?;
        ensure!(
            finished.status.code().is_some_and(|code| code != 0),
            "{}",
            finished.describe()
        );
        ensure!(
            !finished.stderr.trim().is_empty(),
            "no word about {arguments:?}"
        );
    }
    let finished = shale().arg("mount").arg(&store).run()?;
    ensure!(
        finished.status.code().is_some_and(|code| code != 0),
        "{}",
        finished.describe()
    );
    shale()
        .arg("fsck")
        .arg("--no-such-flag")
        .arg(&store)
        .run()?
        .status_is(16)?;
    same_trees(&snapshot(case)?, &before)
}

pub(crate) fn unmount_of_what_is_not_ours(case: &Case) -> Outcome {
    let plain = case.dir("plain")?;
    names(&refused(shale().arg("unmount").arg(&plain).run()?)?, &plain)?;
    let missing = case.work().join("missing");
    names(
        &refused(shale().arg("unmount").arg(&missing).run()?)?,
        &missing,
    )?;
    let device = case.loop_fs("device", LoopFs::Ext4, 32 << 20)?;
    names(
        &refused(shale().arg("unmount").arg(device.path()).run()?)?,
        device.path(),
    )?;
    ensure!(
        device.path().join("lost+found").exists(),
        "the ext4 was unmounted"
    );
    Ok(())
}

pub(crate) fn unmount_clears_a_dead_mount(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &[])?;
    let path = mount.path().join("file");
    fs::write(&path, b"contents")?;
    File::open(&path)?.sync_all()?;
    File::open(mount.path())?.sync_all()?;
    mount.kill9()?;
    ensure!(
        fs::metadata(&path).is_err(),
        "a mount without a daemon answers"
    );
    ensure!(
        mount.is_mounted(),
        "the kernel keeps the mount of a dead daemon"
    );
    shale().arg("unmount").arg(mount.path()).run()?.success()?;
    ensure!(!mount.is_mounted(), "`shale unmount` left the dead mount");
    mount.start()?;
    ensure_eq!(fs::read(&path)?, b"contents", "what was durable");
    mount.unmount()?;
    mount.fsck_is_clean()
}

pub(crate) fn fsck_of_something_that_is_not_a_store(case: &Case) -> Outcome {
    let (file, empty) = (case.work().join("file"), case.dir("empty")?);
    fs::write(&file, b"x")?;
    let before = snapshot(case)?;
    for store in [file, empty, case.work().join("missing")] {
        for flags in [&[][..], &["--rebuild"]] {
            let finished = shale()
                .arg("fsck")
                .args(flags)
                .arg(&store)
                .run()?
                .status_is(8)?;
            names(&refused(finished)?, &store)?;
        }
    }
    same_trees(&snapshot(case)?, &before)
}

pub(crate) fn fsck_of_a_mounted_store(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &[])?;
    fs::write(mount.path().join("file"), b"contents")?;
    for flags in [&[][..], &["--rebuild"]] {
        let message = refused(mount.fsck(flags)?.status_is(8)?)?;
        ensure!(
            message.contains(&mount.pid()?.to_string()),
            "the message does not name the holder: {message}"
        );
    }
    ensure_eq!(
        fs::read(mount.path().join("file"))?,
        b"contents",
        "the mount still works"
    );
    mount.unmount()?;
    mount.fsck_is_clean()
}

pub(crate) fn stat_of_what_is_not_on_a_mount(case: &Case) -> Outcome {
    let plain = case.work().join("plain");
    fs::write(&plain, b"x")?;
    for path in [&plain, &case.work().join("missing")] {
        names(&refused(shale().arg("stat").arg(path).run()?)?, path)?;
    }
    Ok(())
}

pub(crate) fn changes_in_a_read_only_mount(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &["-o", "settle=off"])?;
    fs::write(mount.path().join("file"), vec![b'x'; 100_000])?;
    mount.remount_with(&["--ro"])?;
    for words in [
        &["settle", "--wait"][..],
        &["settle", "--rewrite"],
        &["gc", "--wait"],
        &["policy", "set", "codec=lz4"],
    ] {
        let finished = shale().args(words).arg(mount.path()).run()?.status_is(74)?;
        let message = refused(finished)?;
        ensure!(message.contains("mount it without ro"), "{message}");
    }
    shale().arg("stat").arg(mount.path()).ok()?;
    mount.unmount()
}
