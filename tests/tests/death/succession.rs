//! A daemon among others: the one mounted after it in the same place, and the process that started
//! it.

use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

use shale_tests::{Case, Cmd, Mount, Outcome, alive, binary, ensure};

/// A mount that took the place of a lazily unmounted one stays when that one ends.
pub(crate) fn next_mount(case: &Case) -> Outcome {
    let mut first = case.mount("fs", &[])?;
    let pid = first.pid()?;
    let mut file = File::create(first.path().join("file"))?;
    // As `umount -l` does.
    first.detach();
    let store = case.work().join("next.store");
    let mut next = Mount::new(store, first.path().to_owned(), &[])?;
    file.write_all(b"last words")?;
    drop(file);
    let deadline = Instant::now() + Duration::from_secs(60);
    while alive(pid) {
        ensure!(Instant::now() < deadline, "the first daemon does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
    ensure!(next.is_mounted(), "the next mount has gone with the first");
    next.unmount()?;
    first.fsck_is_clean()
}

/// A script that holds a lock while it mounts does not hold it for ever.
pub(crate) fn descriptors(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &[])?;
    mount.unmount()?;
    let lock = case.work().join("script.lock");
    Cmd::shell("exec 9> \"$1\"; flock -n 9; \"$2\" mount \"$3\" \"$4\"")
        .arg("script")
        .args([
            &lock,
            &binary(),
            &mount.store().to_owned(),
            &mount.path().to_owned(),
        ])
        .ok()?;
    Cmd::new("flock").arg("-n").arg(&lock).arg("true").ok()?;
    Cmd::new(binary()).arg("unmount").arg(mount.path()).ok()?;
    Ok(())
}
