//! What `shale` does when it is asked for something that cannot be done: one line
//! that says what is wrong, an exit status that is not 0, and nothing changed.

#[path = "bad_input/table.rs"]
mod table;

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use shale_tests::{
    Case, Cmd, Finished, LoopFs, Mount, Need, Outcome, Suite, ensure, ensure_eq, read_tree,
    same_trees, shale,
};

fn main() -> ExitCode {
    Suite::new("bad_input")
        .need(Need::Shale)
        .limit(Duration::from_secs(120))
        .test("store_that_is_a_file", store_that_is_a_file)
        .test(
            "store_that_holds_something_else",
            store_that_holds_something_else,
        )
        .test(
            "store_of_an_unknown_format_version",
            store_of_an_unknown_version,
        )
        .test(
            "store_with_a_damaged_superblock",
            store_with_a_damaged_superblock,
        )
        .test("store_that_is_not_writable", store_that_is_not_writable)
        .test(
            "store_on_a_read_only_file_system",
            store_on_a_read_only_file_system,
        )
        .test(
            "store_whose_parent_does_not_exist",
            store_whose_parent_does_not_exist,
        )
        .test(
            "store_that_is_mounted_already",
            store_that_is_mounted_already,
        )
        .test(
            "mountpoint_that_does_not_exist",
            mountpoint_that_does_not_exist,
        )
        .test("mountpoint_that_is_a_file", mountpoint_that_is_a_file)
        .test("mountpoint_that_is_not_empty", mountpoint_that_is_not_empty)
        .test("mountpoint_that_is_busy", mountpoint_that_is_busy)
        .test(
            "mountpoint_inside_the_store_and_the_reverse",
            mountpoint_inside_the_store,
        )
        .test(
            "sizes_and_options_out_of_range",
            sizes_and_options_out_of_range,
        )
        .test(
            "arguments_that_are_missing_or_unknown",
            arguments_that_are_missing,
        )
        .test("unmount_of_what_is_not_ours", unmount_of_what_is_not_ours)
        .test(
            "unmount_clears_the_mount_of_a_dead_daemon",
            unmount_clears_a_dead_mount,
        )
        .test(
            "a_dead_daemon_does_not_lock_its_store",
            dead_daemon_does_not_lock,
        )
        .test("fsck_of_what_is_no_store", fsck_of_what_is_no_store)
        .test("fsck_of_a_mounted_store", fsck_of_a_mounted_store)
        .test(
            "stat_of_what_is_not_on_a_mount",
            stat_of_what_is_not_on_a_mount,
        )
        .test(
            "changes_in_a_mount_that_is_read_only",
            changes_in_a_read_only_mount,
        )
        .test(
            "every_command_refuses_every_bad_path_and_number",
            table::every_command_refuses_everything,
        )
        .test(
            "every_command_explains_wrong_usage",
            table::every_command_explains_wrong_usage,
        )
        .run()
}

/// Fails unless the command failed with exactly one line on its standard error.
#[track_caller]
fn refused(finished: Finished) -> Outcome<String> {
    let described = finished.describe();
    ensure!(
        finished.status.code().is_some_and(|code| code != 0),
        "not refused: {described}"
    );
    ensure_eq!(
        finished.stderr.lines().count(),
        1,
        "lines on stderr of {described}"
    );
    ensure!(
        finished.stdout.is_empty(),
        "a refusal wrote to stdout: {described}"
    );
    ensure!(
        !finished.stderr.contains("panicked"),
        "a panic is no message: {described}"
    );
    ensure!(
        finished.stderr.trim().len() > 15,
        "the message says nothing: {described}"
    );
    Ok(finished.stderr)
}

/// Fails unless a mount is refused and everything below `work` is as it was.
#[track_caller]
fn mount_refused(
    case: &Case,
    options: &[&str],
    store: &Path,
    mountpoint: &Path,
) -> Outcome<String> {
    let before = snapshot(case)?;
    let message = refused(
        shale()
            .arg("mount")
            .args(options)
            .arg(store)
            .arg(mountpoint)
            .run()?,
    )?;
    same_trees(&snapshot(case)?, &before)?;
    Ok(message)
}

/// Everything in the test's directory, without what the runner writes there.
fn snapshot(
    case: &Case,
) -> Outcome<std::collections::BTreeMap<std::path::PathBuf, shale_tests::Entry>> {
    let mut tree = read_tree(case.work())?;
    tree.remove(Path::new("output"));
    tree.remove(Path::new(""));
    Ok(tree)
}

#[track_caller]
fn names(message: &str, path: &Path) -> Outcome {
    ensure!(
        message.contains(&*path.to_string_lossy()),
        "the message does not name {}: {message}",
        path.display()
    );
    Ok(())
}

fn store_that_is_a_file(case: &Case) -> Outcome {
    let (store, mountpoint) = (case.work().join("store"), case.dir("mnt")?);
    fs::write(&store, b"a letter")?;
    names(&mount_refused(case, &[], &store, &mountpoint)?, &store)
}

fn store_that_holds_something_else(case: &Case) -> Outcome {
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

fn store_of_an_unknown_version(case: &Case) -> Outcome {
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

fn store_with_a_damaged_superblock(case: &Case) -> Outcome {
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

fn store_that_is_not_writable(case: &Case) -> Outcome {
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

fn store_on_a_read_only_file_system(case: &Case) -> Outcome {
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

fn store_whose_parent_does_not_exist(case: &Case) -> Outcome {
    let mountpoint = case.dir("mnt")?;
    let store = case.work().join("no/such/store");
    names(&mount_refused(case, &[], &store, &mountpoint)?, &store)
}

fn store_that_is_mounted_already(case: &Case) -> Outcome {
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

fn mountpoint_that_does_not_exist(case: &Case) -> Outcome {
    let mountpoint = case.work().join("nowhere");
    names(
        &mount_refused(case, &[], &case.work().join("store"), &mountpoint)?,
        &mountpoint,
    )
}

fn mountpoint_that_is_a_file(case: &Case) -> Outcome {
    let mountpoint = case.work().join("file");
    fs::write(&mountpoint, b"x")?;
    names(
        &mount_refused(case, &[], &case.work().join("store"), &mountpoint)?,
        &mountpoint,
    )
}

fn mountpoint_that_is_not_empty(case: &Case) -> Outcome {
    let mountpoint = case.dir("mnt")?;
    fs::write(mountpoint.join("file"), b"x")?;
    names(
        &mount_refused(case, &[], &case.work().join("store"), &mountpoint)?,
        &mountpoint,
    )
}

fn mountpoint_that_is_busy(case: &Case) -> Outcome {
    let mut mount = case.mount("first", &[])?;
    let store = case.work().join("second.store");
    let message = refused(shale().arg("mount").arg(&store).arg(mount.path()).run()?)?;
    names(&message, mount.path())?;
    ensure!(!store.exists(), "the refused store was created");
    fs::write(mount.path().join("file"), b"still works")?;
    mount.unmount()
}

fn mountpoint_inside_the_store(case: &Case) -> Outcome {
    let store = case.dir("store")?;
    mount_refused(case, &[], &store, &store)?;
    let inside = case.dir("outer")?.join("inner");
    fs::create_dir(&inside)?;
    mount_refused(case, &[], &case.work().join("outer"), &inside)?;
    Ok(())
}

fn sizes_and_options_out_of_range(case: &Case) -> Outcome {
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

fn arguments_that_are_missing(case: &Case) -> Outcome {
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

fn unmount_of_what_is_not_ours(case: &Case) -> Outcome {
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

fn unmount_clears_a_dead_mount(case: &Case) -> Outcome {
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

fn dead_daemon_does_not_lock(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &[])?;
    let old = mount.pid()?;
    mount.kill9()?;
    mount.detach();
    mount.start()?;
    ensure!(mount.pid()? != old, "the lock still names the dead daemon");
    mount.unmount()?;
    mount.fsck_is_clean()
}

fn fsck_of_what_is_no_store(case: &Case) -> Outcome {
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

fn fsck_of_a_mounted_store(case: &Case) -> Outcome {
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

fn stat_of_what_is_not_on_a_mount(case: &Case) -> Outcome {
    let plain = case.work().join("plain");
    fs::write(&plain, b"x")?;
    for path in [&plain, &case.work().join("missing")] {
        names(&refused(shale().arg("stat").arg(path).run()?)?, path)?;
    }
    Ok(())
}

fn changes_in_a_read_only_mount(case: &Case) -> Outcome {
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
