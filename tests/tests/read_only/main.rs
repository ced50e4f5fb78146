//! A store that is mounted read-only: nothing in it is written, it may be on a read-only medium,
//! and any number of mounts share it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use nix::errno::Errno;
use rustix::fs::XattrFlags;
use shale_tests::{
    Case, Cmd, Entry, LoopFs, Mount, Need, Outcome, Rng, Sample, Suite, ensure, ensure_eq,
    read_tree, report, same_trees, shale,
};

const MIB: u64 = 1 << 20;

fn main() -> ExitCode {
    Suite::new("read_only")
        .need(Need::Shale)
        .limit(Duration::from_secs(120))
        .test("a_read_only_medium_is_mounted_twice_and_checked", medium)
        .test("a_read_only_bind_mount_is_enough", bind)
        .test("a_medium_without_a_lock_is_mounted", without_lock)
        .test("nothing_is_written_to_a_writable_medium", untouched)
        .test("writers_and_readers_exclude_each_other", exclusion)
        .test("a_killed_store_is_read_as_it_is", killed)
        .test("a_store_that_needs_to_be_written_says_so", needs_writing)
        .run()
}

/// An unmounted store with every kind of file, some of them settled. Returns its files.
fn make(store: &Path, mountpoint: &Path) -> Outcome<BTreeMap<PathBuf, Entry>> {
    let mut mount = Mount::new(store.to_owned(), mountpoint.to_owned(), &[])?;
    Sample::new(7).create(mount.path())?;
    shale()
        .args(["settle"])
        .arg(mount.path().join("plain"))
        .ok()?;
    let files = read_tree(mount.path())?;
    mount.unmount()?;
    Ok(files)
}

/// Everything that only reads works.
fn look_around(mount: &Mount, files: &BTreeMap<PathBuf, Entry>) -> Outcome {
    same_trees(&read_tree(mount.path())?, files)?;
    let stat = shale().arg("stat").arg(mount.path()).ok()?;
    ensure!(stat.contains("raw"), "shale stat says\n{stat}");
    let found = shale().arg("doctor").arg(mount.path()).ok()?;
    ensure!(
        found.contains(&format!("process {}", mount.pid()?)),
        "shale doctor does not name the daemon:\n{found}"
    );
    shale().args(["top", "--once"]).arg(mount.path()).ok()?;
    Cmd::new("df").arg(mount.path()).ok()?;
    ensure_eq!(
        report(&mount.path().join("plain/noise-9"), "raw")?,
        "3000017",
        "a report"
    );
    Ok(())
}

/// Nothing can be changed, and nothing waits for threads that do not exist.
fn refuses_changes(mount: &Mount) -> Outcome {
    let top = mount.path();
    let errno = |error: std::io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(0));
    let refused = |what: &str, result: std::io::Result<()>| {
        ensure_eq!(result.map_err(errno), Err(Errno::EROFS), "{what}");
        Ok(())
    };
    refused("create", File::create(top.join("new")).map(drop))?;
    refused("mkdir", fs::create_dir(top.join("new")))?;
    refused("unlink", fs::remove_file(top.join("plain/noise-1")))?;
    refused("rename", fs::rename(top.join("plain"), top.join("other")))?;
    let old = File::options().write(true).open(top.join("plain/noise-1"));
    refused("open to write", old.map(drop))?;
    for (name, value) in [("settle.now", "1"), ("gc.now", "50"), ("codec", "none")] {
        let set = Cmd::new("setfattr")
            .args(["-n", &format!("user.shale.{name}"), "-v", value])
            .arg(top.join("plain/noise-9"))
            .run()?;
        ensure!(
            set.describe().contains("Read-only file system"),
            "{name}: {}",
            set.describe()
        );
    }
    for command in [&["settle"][..], &["gc"], &["policy", "set", "codec=none"]] {
        let finished = shale().args(command).arg(top).run()?;
        let text = finished.describe();
        ensure!(
            !finished.status.success() && text.to_lowercase().contains("read-only"),
            "shale {command:?}: {}",
            finished.describe()
        );
    }
    // Nothing to be made durable.
    File::open(top.join("plain/noise-1"))?.sync_all()?;
    File::open(top)?.sync_all()?;
    Cmd::new("sync").arg("-f").arg(top).ok()?;
    Ok(())
}

fn medium(case: &Case) -> Outcome {
    let device = case.loop_fs("medium", LoopFs::Ext4, 128 * MIB)?;
    let store = device.path().join("store");
    let files = make(&store, &case.work().join("made"))?;
    device.read_only(true)?;
    let before = read_tree(&store)?;

    let refused = shale()
        .arg("mount")
        .arg(&store)
        .arg(case.dir("rw")?)
        .run()?;
    ensure!(
        !refused.status.success() && refused.describe().contains("--ro"),
        "{}",
        refused.describe()
    );
    let options = ["--ro", "--memory", "64M"];
    let mut one = Mount::new(store.clone(), case.work().join("one"), &options)?;
    let mut two = Mount::new(store.clone(), case.work().join("two"), &options)?;
    ensure!(one.pid()? != two.pid()?, "one daemon for two mounts");
    for mount in [&one, &two] {
        look_around(mount, &files)?;
        refuses_changes(mount)?;
    }
    one.fsck_is_clean()?;
    one.unmount()?;
    look_around(&two, &files)?;
    // The other one dies, and a third mount does not mind.
    two.kill9()?;
    shale().arg("unmount").arg(two.path()).ok()?;
    two.start()?;
    look_around(&two, &files)?;
    two.unmount()?;
    two.fsck_is_clean()?;
    let exported = case.work().join("exported");
    shale().arg("export").arg(&store).arg(&exported).ok()?;
    same_trees(&read_tree(&store)?, &before)
}

fn bind(case: &Case) -> Outcome {
    let store = case.work().join("store");
    let files = make(&store, &case.work().join("made"))?;
    let before = read_tree(&store)?;
    let shown = case.dir("shown")?;
    for options in ["bind", "remount,bind,ro"] {
        Cmd::new("mount")
            .args(["-o", options])
            .arg(&store)
            .arg(&shown)
            .ok()?;
    }
    let mut mount = Mount::new(shown.clone(), case.work().join("fs"), &["--ro"])?;
    look_around(&mount, &files)?;
    // The same store could be written to by its other name.
    let refused = shale()
        .arg("mount")
        .arg("--log")
        .arg(case.work().join("rw.log"))
        .arg(&store)
        .arg(case.dir("rw")?)
        .run()?;
    ensure!(
        refused.describe().contains("already in use"),
        "{}",
        refused.describe()
    );
    mount.unmount()?;
    mount.fsck_is_clean()?;
    Cmd::new("umount").arg(&shown).ok()?;
    same_trees(&read_tree(&store)?, &before)
}

fn without_lock(case: &Case) -> Outcome {
    let device = case.loop_fs("medium", LoopFs::Ext4, 128 * MIB)?;
    let store = device.path().join("store");
    let files = make(&store, &case.work().join("made"))?;
    fs::remove_file(store.join("lock"))?;
    device.read_only(true)?;
    let mut mount = Mount::new(store.clone(), case.work().join("fs"), &["--ro"])?;
    look_around(&mount, &files)?;
    mount.fsck_is_clean()?;
    mount.unmount()?;
    ensure!(!store.join("lock").exists(), "a lock was made");
    Ok(())
}

fn untouched(case: &Case) -> Outcome {
    let store = case.work().join("store");
    let files = make(&store, &case.work().join("made"))?;
    let before = read_tree(&store)?;
    let mountpoint = case.dir("fs")?;
    // Without a log of its own, which would otherwise be in the store.
    shale()
        .args(["mount", "--ro", "--metrics", "127.0.0.1:0"])
        .arg(&store)
        .arg(&mountpoint)
        .run()?;
    shale().arg("unmount").arg(&mountpoint).run()?;
    shale()
        .args(["mount", "--ro"])
        .arg(&store)
        .arg(&mountpoint)
        .ok()?;
    let mounted = same_trees(&read_tree(&store)?, &before);
    let shown = read_tree(&mountpoint).and_then(|found| same_trees(&found, &files));
    shale().arg("unmount").arg(&mountpoint).ok()?;
    mounted?;
    shown?;
    same_trees(&read_tree(&store)?, &before)?;
    let mut mount = Mount::new(store.clone(), mountpoint, &["--ro"])?;
    look_around(&mount, &files)?;
    refuses_changes(&mount)?;
    mount.unmount()?;
    shale().arg("fsck").arg(&store).ok()?;
    same_trees(&read_tree(&store)?, &before)
}

fn exclusion(case: &Case) -> Outcome {
    let store = case.work().join("store");
    make(&store, &case.work().join("made"))?;
    let other = case.dir("other")?;
    let try_mount = |options: &[&str]| {
        shale()
            .arg("mount")
            .args(options)
            .arg(&store)
            .arg(&other)
            .run()
    };
    let mut reader = Mount::new(store.clone(), case.work().join("fs"), &["--ro"])?;
    let refused = try_mount(&[])?;
    let text = refused.describe();
    ensure!(
        !refused.status.success()
            && text.contains("already in use")
            && text.contains("reads it")
            && text.contains(&reader.pid()?.to_string()),
        "a writer beside a reader: {}",
        refused.describe()
    );
    for repair in ["--repair", "--rebuild"] {
        reader.fsck(&[repair])?.status_is(8)?;
    }
    reader.unmount()?;
    let mut writer = Mount::new(store.clone(), case.work().join("fs"), &[])?;
    let refused = try_mount(&["--ro"])?;
    ensure!(
        !refused.status.success()
            && refused.describe().contains("already in use")
            && refused.describe().contains(&writer.pid()?.to_string()),
        "a reader beside a writer: {}",
        refused.describe()
    );
    writer.unmount()
}

fn killed(case: &Case) -> Outcome {
    let device = case.loop_fs("medium", LoopFs::Ext4, 128 * MIB)?;
    let store = device.path().join("store");
    make(&store, &case.work().join("made"))?;
    let mut writer = Mount::new(store.clone(), case.work().join("rw"), &[])?;
    let mut kept = BTreeMap::new();
    for number in 0..200u32 {
        let path = PathBuf::from(format!("synced-{number}"));
        let bytes = number.to_le_bytes().repeat(3000);
        let mut file = File::create(writer.path().join(&path))?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        kept.insert(path, bytes);
    }
    fs::remove_file(writer.path().join("plain/noise-1"))?;
    File::open(writer.path().join("plain"))?.sync_all()?;
    writer.kill9()?;
    writer.detach();
    device.read_only(true)?;
    let before = read_tree(&store)?;
    let check = |mount: &Mount| -> Outcome {
        for (path, bytes) in &kept {
            ensure!(
                fs::read(mount.path().join(path))? == *bytes,
                "{} differs",
                path.display()
            );
        }
        ensure!(
            !mount.path().join("plain/noise-1").exists(),
            "a deleted file is back"
        );
        Ok(())
    };
    let mut one = Mount::new(store.clone(), case.work().join("one"), &["--ro"])?;
    let mut two = Mount::new(store.clone(), case.work().join("two"), &["--ro"])?;
    check(&one)?;
    check(&two)?;
    one.unmount()?;
    two.unmount()?;
    one.fsck_is_clean()?;
    same_trees(&read_tree(&store)?, &before)?;
    device.read_only(false)?;
    writer.start()?;
    check(&writer)?;
    writer.unmount()?;
    writer.fsck_is_clean()
}

fn needs_writing(case: &Case) -> Outcome {
    let mountpoint = case.dir("fs")?;
    let mount = |store: &Path| {
        shale()
            .args(["mount", "--ro"])
            .arg(store)
            .arg(&mountpoint)
            .run()
    };
    // Made, and its daemon killed before there was anything in it.
    let fresh = case.work().join("fresh");
    Mount::new(fresh.clone(), case.work().join("made"), &[])?.unmount()?;
    fs::remove_dir_all(fresh.join("index"))?;
    fs::create_dir(fresh.join("index"))?;
    // The base has what the snapshot has lost.
    let store = case.work().join("store");
    make(&store, &case.work().join("made"))?;
    let mut writer = Mount::new(store.clone(), case.work().join("rw"), &[])?;
    let file = writer.path().join("file");
    File::create(&file)?;
    // More than one segment of the journal, so that the snapshot replaces the first.
    let mut rng = Rng::new(5);
    for _ in 0..400 {
        let value = rng.bytes(60_000);
        rustix::fs::setxattr(&file, "user.large", &value, XattrFlags::empty())?;
    }
    writer.unmount()?;
    let mut damaged = 0;
    for entry in fs::read_dir(store.join("index"))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        ensure!(name != "journal-0000000000000001", "{name} is still there");
        if name.starts_with("snapshot-") {
            let file = File::options().write(true).open(&path)?;
            file.set_len(fs::metadata(&path)?.len() / 2)?;
            damaged += 1;
        }
    }
    ensure!(damaged > 0, "the index has no snapshot to damage");
    for (store, advice) in [
        (&fresh, "once without --ro"),
        (&store, "a mount without --ro"),
    ] {
        let before = read_tree(store)?;
        let refused = mount(store)?;
        ensure!(
            !refused.status.success() && refused.describe().contains(advice),
            "{}: {}",
            store.display(),
            refused.describe()
        );
        same_trees(&read_tree(store)?, &before)?;
    }
    writer.start()?;
    ensure!(
        writer.path().join("file").exists(),
        "a file is missing after the repair"
    );
    writer.unmount()
}
