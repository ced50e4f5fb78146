//! Stores that are moved, removed, or covered by another mount.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use shale_tests::{Case, Context, LoopFs, Mount, Outcome, Rng, alive, ensure, ensure_eq, shale};

use crate::device::wait_gone;
use crate::{MIB, check, durable_files, errno_of};

/// `umount -l` of the file system of the store. The daemon has its files open and keeps using them;
/// it must not create new ones where the path of the store leads to by then.
pub(crate) fn a_store_out_of_sight_is_still_the_store(case: &Case) -> Outcome {
    let mut device = case.loop_fs("device", LoopFs::Ext4, 512 * MIB as u64)?;
    let store = device.path().join("store");
    let mut mount = Mount::new(store, case.work().join("fs"), &["--memory", "32M"])?;
    let mut rng = Rng::new(11);
    let mut kept = durable_files(mount.path(), "before", 6, &mut rng)?;
    device.detach()?;
    // More than a pack holds, so that new ones begin.
    kept.extend(durable_files(mount.path(), "after", 24, &mut rng)?);
    shale()
        .args(["gc", "--wait", "--live", "99"])
        .arg(mount.path())
        .ok()?;
    check(&kept, "while the store is out of sight")?;
    let pid = mount.pid()?;
    mount.unmount()?;
    ensure!(
        !alive(pid),
        "`shale unmount` did not wait for a daemon whose store is out of sight"
    );
    let strays = fs::read_dir(device.path())?.count();
    ensure_eq!(strays, 0, "entries made where the store was mounted");
    device.mount_again()?;
    mount.fsck_is_clean()?;
    mount.start()?;
    check(&kept, "after the store has come back")?;
    mount.unmount()
}

/// Waits until something holds.
fn until(what: &str, mut good: impl FnMut() -> bool) -> Outcome {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !good() {
        ensure!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// What `shale doctor` says of the store: the verdict and the finding.
fn doctor(path: &Path, status: i32) -> Outcome<(String, String)> {
    let asked = shale().args(["doctor", "--json"]).arg(path).run()?;
    let asked = asked.status_is(status)?;
    let value: serde_json::Value = serde_json::from_slice(&asked.stdout)?;
    let checks = value["checks"].as_array().doing("the list of checks")?;
    let store = checks.iter().find(|check| check["name"] == "store");
    let store = store.doing("the check of the store")?;
    let text = |key: &str| store[key].as_str().unwrap_or_default().to_owned();
    Ok((text("verdict"), text("message")))
}

/// `mv` of a store within its file system.
pub(crate) fn a_store_that_is_moved(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &["--memory", "32M"])?;
    let mut rng = Rng::new(15);
    let mut kept = durable_files(mount.path(), "before", 2, &mut rng)?;
    let (old, new) = (mount.store().to_owned(), case.work().join("moved"));
    fs::rename(&old, &new)?;
    kept.extend(durable_files(mount.path(), "after", 2, &mut rng)?);
    until("the log tells", || {
        mount.log_text().contains(&*new.to_string_lossy())
    })?;
    ensure_eq!(mount.log_text().lines().count(), 1, "{}", mount.log_text());
    for path in [mount.path(), &old] {
        let (verdict, finding) = doctor(path, 0)?;
        ensure_eq!(verdict, "advice", "{finding}");
        ensure!(finding.contains(&*new.to_string_lossy()), "{finding}");
    }
    // Another store in its place is not taken for it.
    fs::create_dir(&old)?;
    ensure_eq!(doctor(mount.path(), 0)?.0, "advice");
    mount.unmount()?;
    fs::remove_dir(&old)?;
    fs::rename(&new, &old)?;
    mount.fsck_is_clean()?;
    mount.start()?;
    check(&kept, "after the move")?;
    mount.unmount()
}

/// `rm -rf` of a store: nothing appears stored that is not.
pub(crate) fn a_store_that_is_removed(case: &Case) -> Outcome {
    let mount = case.mount("fs", &["--memory", "32M"])?;
    let mut rng = Rng::new(16);
    let kept = durable_files(mount.path(), "file", 4, &mut rng)?;
    let path = |name: &str| mount.path().join(name);
    check(&kept, "before")?;
    let writer = File::options().write(true).open(path("file-1"))?;
    let other = File::options().write(true).open(path("file-2"))?;
    writer.write_all_at(&rng.bytes(MIB), 0)?;

    // The daemon may be making a file in a directory that is being removed.
    until("the store is gone", || {
        let _ = fs::remove_dir_all(mount.store());
        !mount.store().exists()
    })?;

    ensure_eq!(errno_of(writer.sync_all(), "fsync")?, libc::EIO);
    ensure_eq!(errno_of(writer.sync_all(), "the next fsync")?, libc::EIO);
    let top = File::open(mount.path())?;
    ensure_eq!(errno_of(top.sync_all(), "fsync of a directory")?, libc::EIO);
    drop(top);
    // Names, attributes and contents alike.
    ensure_eq!(
        errno_of(File::create_new(path("new")), "create")?,
        libc::EIO
    );
    ensure_eq!(errno_of(fs::create_dir(path("dir")), "mkdir")?, libc::EIO);
    let renamed = fs::rename(path("file-0"), path("new"));
    ensure_eq!(errno_of(renamed, "rename")?, libc::EIO);
    ensure_eq!(
        errno_of(fs::remove_file(path("file-0")), "unlink")?,
        libc::EIO
    );
    let opened = File::options().write(true).open(path("file-3"));
    ensure_eq!(errno_of(opened, "open to write")?, libc::EIO);
    until("a write to an open file is refused", || {
        other.write_at(b"x", 0).is_err()
    })?;
    // What can still be read can be copied out.
    ensure_eq!(fs::read_dir(mount.path())?.count(), kept.len(), "entries");
    ensure!(
        fs::read(path("file-0"))? == kept[&path("file-0")],
        "what was cached has changed"
    );
    drop((writer, other));

    let log = mount.log_text();
    let errors = log.lines().filter(|line| line.contains("ERROR"));
    ensure_eq!(errors.count(), 1, "errors in the log: {log}");
    ensure!(log.contains("has been removed"), "{log}");
    for path in [mount.path(), mount.store()] {
        let (verdict, finding) = doctor(path, 1)?;
        ensure_eq!(verdict, "problem", "{finding}");
        ensure!(finding.contains("removed"), "{finding}");
    }
    let pid = mount.pid()?;
    let finished = shale().arg("unmount").arg(mount.path()).run()?;
    ensure!(!mount.is_mounted(), "{}", finished.describe());
    let finished = finished.status_is(74)?;
    let said = &finished.stderr;
    ensure!(said.contains("removed") && !said.contains("safe"), "{said}");
    wait_gone(pid)
}
