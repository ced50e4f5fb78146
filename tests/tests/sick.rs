//! Devices that go away under a mount: who is concerned is told, the others are not, and nothing
//! acknowledged is lost when the device comes back.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use shale_tests::{
    Case, Cmd, Context, Failure, LoopFs, Mount, Need, Outcome, Rng, Suite, Writer, alive, ensure,
    ensure_eq, note, rounds, script, seed, shale, tally,
};

const MIB: usize = 1 << 20;
const WRITERS: u64 = 3;

fn main() -> ExitCode {
    Suite::new("sick")
        .need(Need::Shale)
        .need(Need::Command("cc"))
        .limit(Duration::from_secs(300))
        .test(
            "a_store_out_of_sight_is_still_the_store",
            a_store_out_of_sight_is_still_the_store,
        )
        .test("a_store_that_is_moved_goes_on", a_store_that_is_moved)
        .test("a_store_that_is_removed_is_told", a_store_that_is_removed)
        .test("a_dead_device_is_told", a_dead_device_is_told)
        .test(
            "devices_that_die_under_load_keep_what_was_acknowledged",
            devices_that_die_under_load,
        )
        .test(
            "a_device_that_hangs_holds_up_nobody_else",
            a_device_that_hangs_holds_up_nobody_else,
        )
        .test(
            "very_many_who_wait_for_a_device_hold_up_nobody_else",
            very_many_who_wait,
        )
        .test(
            "a_log_that_cannot_be_written_harms_nobody",
            a_log_that_cannot_be_written,
        )
        .test("interrupted_and_short_transfers_are_finished", interrupted)
        .test(
            "interrupted_and_short_transfers_of_mapped_packs_are_finished",
            interrupted_mapped,
        )
        .run()
}

/// Writes files that are durable, with their names.
fn durable_files(
    top: &Path,
    prefix: &str,
    count: usize,
    rng: &mut Rng,
) -> Outcome<BTreeMap<PathBuf, Vec<u8>>> {
    let mut kept = BTreeMap::new();
    for number in 0..count {
        let (path, bytes) = (top.join(format!("{prefix}-{number}")), rng.bytes(MIB));
        let mut file = File::create_new(&path)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        kept.insert(path, bytes);
    }
    File::open(top)?.sync_all()?;
    Ok(kept)
}

fn check(kept: &BTreeMap<PathBuf, Vec<u8>>, when: &str) -> Outcome {
    for (path, bytes) in kept {
        let found = fs::read(path).doing(format!("{when}: reading {}", path.display()))?;
        ensure!(found == *bytes, "{when}: {} has changed", path.display());
    }
    Ok(())
}

/// The errno of something that must fail.
fn errno_of<T>(result: std::io::Result<T>, what: &str) -> Outcome<i32> {
    match result {
        Ok(_) => Err(Failure::new(format!("{what} succeeded on a dead device"))),
        Err(error) => error.raw_os_error().doing(format!("{what}: {error}")),
    }
}

/// `umount -l` of what holds the store. The daemon has its files open and goes on with them; it
/// must not begin new ones at whatever the path of the store leads to by then.
fn a_store_out_of_sight_is_still_the_store(case: &Case) -> Outcome {
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
fn a_store_that_is_moved(case: &Case) -> Outcome {
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

/// `rm -rf` of a store: nothing looks stored that is not.
fn a_store_that_is_removed(case: &Case) -> Outcome {
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

fn a_dead_device_is_told(case: &Case) -> Outcome {
    let mut device = case.loop_fs("device", LoopFs::Ext4, 256 * MIB as u64)?;
    let store = device.path().join("store");
    // Warnings are kept elsewhere: the device could not take them.
    let mut mount = Mount::new(store, case.work().join("fs"), &["--memory", "32M"])?;
    let mut rng = Rng::new(12);
    let kept = durable_files(mount.path(), "file", 6, &mut rng)?;
    mount.remount()?;
    let top = mount.path().to_path_buf();
    let path = |name: &str| top.join(name);
    let known = &kept[&path("file-0")];
    ensure!(fs::read(path("file-0"))? == *known, "before");
    let reader = File::open(path("file-0"))?;
    let writer = File::options().write(true).open(path("file-1"))?;
    let innocent = File::options().write(true).open(path("file-2"))?;
    writer.write_all_at(&rng.bytes(MIB), 0)?;

    device.die()?;

    // The handle whose data cannot be stored is told, and told again: it is never acknowledged.
    ensure_eq!(errno_of(writer.sync_all(), "fsync")?, libc::EIO);
    ensure_eq!(errno_of(writer.sync_all(), "the next fsync")?, libc::EIO);
    // What is in memory stays readable; what is not, is an error and no zeros.
    let mut bytes = vec![0; known.len()];
    reader.read_exact_at(&mut bytes, 0)?;
    ensure!(bytes == *known, "what was cached has changed");
    ensure_eq!(errno_of(fs::read(path("file-5")), "a read")?, libc::EIO);
    // Names that are known are; new ones are refused.
    ensure_eq!(fs::read_dir(mount.path())?.count(), kept.len(), "entries");
    ensure_eq!(fs::metadata(path("file-3"))?.len(), MIB as u64, "a size");
    ensure_eq!(
        errno_of(File::create_new(path("new")), "creating")?,
        libc::EIO
    );
    ensure_eq!(
        errno_of(fs::remove_file(path("file-4")), "unlink")?,
        libc::EIO
    );
    // A handle that wrote nothing has nothing to be told.
    drop(innocent);
    drop((reader, writer));

    // The mount can be taken away, and does not claim that everything is durable.
    let pid = mount.pid()?;
    let finished = shale().arg("unmount").arg(mount.path()).run()?;
    ensure!(
        !mount.is_mounted(),
        "still mounted: {}",
        finished.describe()
    );
    ensure!(
        !finished.status.success(),
        "`shale unmount` said that everything is durable"
    );
    wait_gone(pid)?;
    device.mount_again()?;
    mount.fsck_is_clean()?;
    mount.start()?;
    let mut sure = kept.clone();
    sure.remove(&path("file-1"));
    check(&sure, "after the device has come back")?;
    ensure_eq!(
        fs::metadata(path("file-1"))?.len(),
        MIB as u64,
        "the size of the file that was being written"
    );
    mount.unmount()
}

fn wait_gone(pid: i32) -> Outcome {
    let deadline = Instant::now() + Duration::from_secs(60);
    while alive(pid) {
        ensure!(Instant::now() < deadline, "the daemon does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn devices_that_die_under_load(case: &Case) -> Outcome {
    let seed = seed()?;
    let mut rng = Rng::new(seed);
    // Not ext4: it forgets about extents that it could not convert when it was shut down, so that
    // an fdatasync of that moment returns 0 for bytes that are not there afterwards.
    let mut device = case.loop_fs("device", LoopFs::Xfs, 1 << 30)?;
    let store = device.path().join("store");
    let mut mount = Mount::new(store, case.work().join("fs"), &["--memory", "64M"])?;
    let mut writers = Writer::several(mount.path(), WRITERS, &mut rng)?;
    let (mut died, mut checked, mut acknowledged) = (0, 0, 0);
    for round in rounds(4) {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| -> Outcome {
            let running: Vec<_> = writers
                .iter_mut()
                .map(|writer| scope.spawn(|| writer.work(&stop)))
                .collect();
            std::thread::sleep(Duration::from_millis(rng.between(50, 900)));
            // Errors are expected from here on.
            stop.store(true, Ordering::SeqCst);
            device.die()?;
            for handle in running {
                handle.join().expect("a writer panicked")?;
            }
            Ok(())
        })
        .doing(format!("round {round}, seed {seed}"))?;
        let pid = mount.pid()?;
        shale().arg("unmount").arg(mount.path()).run()?;
        ensure!(!mount.is_mounted(), "still mounted");
        wait_gone(pid)?;
        device.mount_again()?;
        mount.fsck_is_clean()?;
        mount.start()?;
        for writer in &mut writers {
            checked += writer
                .verify()
                .doing(format!("after round {round}, seed {seed}"))?;
            acknowledged += writer.take_acknowledged();
        }
        died += 1;
    }
    note(format!(
        "{died} deaths, {acknowledged} acknowledged fsyncs, {checked} files checked"
    ));
    ensure!(
        acknowledged > died && checked > died,
        "next to nothing was done"
    );
    tally("a device that dies: rounds", died, died, 0);
    mount.unmount()?;
    mount.fsck_is_clean()
}

fn a_device_that_hangs_holds_up_nobody_else(case: &Case) -> Outcome {
    let device = case.loop_fs("device", LoopFs::Ext4, 256 * MIB as u64)?;
    let store = device.path().join("store");
    let mut mount = Mount::new(store, case.work().join("fs"), &["--memory", "32M"])?;
    let mut rng = Rng::new(13);
    let kept = durable_files(mount.path(), "file", 4, &mut rng)?;
    check(&kept, "before")?;
    let noise = rng.bytes(2 * MIB);
    // In directories of their own: the kernel lets nobody look at one in which a name is made.
    for directory in ["data", "names"] {
        fs::create_dir(mount.path().join(directory))?;
    }
    let (data, name) = (mount.path().join("data/d"), mount.path().join("names/n"));
    let mut file = File::create_new(&data)?;

    let frozen = device.freeze()?;
    std::thread::scope(|scope| -> Outcome {
        let syncing = scope.spawn(|| -> std::io::Result<()> {
            file.write_all(&noise)?;
            file.sync_all()
        });
        let creating = scope.spawn(|| File::create_new(&name)?.sync_all());
        // All of this is answered while the device answers nothing.
        for _ in 0..100 {
            check(&kept, "while the device hangs")?;
            ensure!(
                fs::read_dir(mount.path())?.count() >= kept.len(),
                "entries while the device hangs"
            );
        }
        ensure!(
            !syncing.is_finished() && !creating.is_finished(),
            "something became durable on a device that hangs"
        );
        drop(frozen);
        syncing.join().expect("the thread that syncs panicked")?;
        creating.join().expect("the thread that creates panicked")?;
        Ok(())
    })?;
    drop(file);
    ensure!(fs::read(&data)? == noise, "differs after the wait");
    mount.remount()?;
    check(&kept, "after a remount")?;
    ensure!(fs::read(&data)? == noise, "differs after a remount");
    ensure!(name.exists(), "a name is missing");
    mount.unmount()?;
    mount.fsck_is_clean()
}

/// More names are being made than there are threads that serve requests, each in a directory of
/// its own, and the device hangs.
fn very_many_who_wait(case: &Case) -> Outcome {
    let device = case.loop_fs("device", LoopFs::Ext4, 256 * MIB as u64)?;
    let store = device.path().join("store");
    let mut mount = Mount::new(store, case.work().join("fs"), &["--memory", "32M"])?;
    let mut rng = Rng::new(14);
    let kept = durable_files(mount.path(), "file", 2, &mut rng)?;
    let crowd = 3 * std::thread::available_parallelism()?.get() + 40;
    let names: Vec<PathBuf> = (0..crowd)
        .map(|number| mount.path().join(format!("dir-{number}/name")))
        .collect();
    for name in &names {
        fs::create_dir(name.parent().doing("a directory")?)?;
    }
    let known = mount.path().join("file-0");
    let top = mount.path();
    let look = || -> Outcome {
        for _ in 0..100 {
            rustix::fs::statvfs(top)?;
            ensure!(fs::read_dir(top)?.count() > crowd, "entries");
            // What the kernel has kept is asked for again.
            let file = File::open(&known)?;
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
            let mut bytes = vec![0; MIB];
            file.read_exact_at(&mut bytes, 0)?;
            ensure!(bytes == kept[&known], "what was known has changed");
        }
        Ok(())
    };
    let frozen = device.freeze()?;
    std::thread::scope(|scope| -> Outcome {
        let makers: Vec<_> = names
            .iter()
            .map(|name| scope.spawn(move || File::create_new(name).map(drop)))
            .collect();
        let looking = scope.spawn(look);
        let deadline = Instant::now() + Duration::from_secs(60);
        while !looking.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        let answered = looking.is_finished();
        let made = makers.iter().filter(|maker| maker.is_finished()).count();
        drop(frozen);
        for maker in makers {
            maker.join().expect("a thread that creates panicked")?;
        }
        looking.join().expect("the thread that looks panicked")?;
        ensure!(answered, "nobody else was answered while the device hung");
        ensure_eq!(made, 0, "names made on a device that hangs");
        Ok(())
    })?;
    mount.remount()?;
    for name in &names {
        ensure!(name.exists(), "{} is missing", name.display());
    }
    check(&kept, "after a remount")?;
    mount.unmount()?;
    mount.fsck_is_clean()
}

fn interrupted(case: &Case) -> Outcome {
    let calls = [
        "pread64",
        "pwrite64",
        "write",
        "fsync",
        "fdatasync",
        "open64",
        "ftruncate64",
        "fallocate",
        "rename",
        "unlink",
        "opendir",
        "statvfs",
    ];
    live_interrupted(case, &[], &calls)
}

fn interrupted_mapped(case: &Case) -> Outcome {
    let calls = ["pread64", "pwrite64", "fdatasync", "fallocate", "msync"];
    live_interrupted(case, &["--backing", "pmem"], &calls)
}

/// A daemon of which many calls to the file system of its store are interrupted, and every
/// transfer is cut in half, from its beginning to its end: nobody notices.
fn live_interrupted(case: &Case, options: &[&str], calls: &[&str]) -> Outcome {
    let library = case.work().join("interrupt.so");
    Cmd::new("cc")
        .args(["-O1", "-Wall", "-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(script("interrupt.c"))
        .ok()?;
    let options = [&["--memory", "32M", "-o", "settle=off"], options].concat();
    let mut mount = case.mount("fs", &options)?;
    mount.unmount()?;
    let mut rng = Rng::new(15);
    let mut kept = BTreeMap::new();
    let mut totals: BTreeMap<String, [u64; 2]> = BTreeMap::new();
    // The second session finds what the first one has left.
    for session in 0..2 {
        let report = case.work().join(format!("interrupted-{session}"));
        let command = shale()
            .env("LD_PRELOAD", &library)
            .env("SHALE_INTERRUPTED", &report);
        let mut served = mount.serve(command)?;
        ensure!(
            served.is_running()?,
            "no mount with interrupted calls\n{}",
            mount.log_tail()
        );
        check(&kept, "in the next session")?;
        work_on(&mount, session, &mut kept, &mut rng)
            .doing(format!("session {session}\n{}\n", mount.log_tail()))?;
        shale().arg("unmount").arg(mount.path()).ok()?;
        let status = served
            .end(Duration::from_secs(60))?
            .doing("waiting for the daemon to end")?;
        ensure!(status.success(), "{status}\n{}", mount.log_tail());
        for line in fs::read_to_string(&report)?.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [name, interrupted, cut] = words[..] else {
                return Err(Failure::new(format!("what was interrupted? {line}")));
            };
            let total = totals.entry(name.to_owned()).or_default();
            *total = [
                total[0] + interrupted.parse::<u64>()?,
                total[1] + cut.parse::<u64>()?,
            ];
        }
        mount.fsck_is_clean()?;
    }
    let shown: Vec<String> = totals
        .iter()
        .map(|(name, [interrupted, cut])| format!("{name} {interrupted} ({cut} cut)"))
        .collect();
    note(format!("interrupted: {}", shown.join(", ")));
    for call in calls {
        let [interrupted, cut] = totals.get(*call).copied().unwrap_or_default();
        ensure!(interrupted > 0, "{call} was never interrupted");
        let transfers = ["pread64", "pwrite64"].contains(call);
        ensure!(cut > 0 || !transfers, "{call} was never cut short");
    }
    let log = mount.log_text();
    let complaint = log.lines().find(|line| {
        let expected = line.contains("is not persistent memory");
        (line.contains("WARN") || line.contains("ERROR") || line.contains("panicked")) && !expected
    });
    ensure!(complaint.is_none(), "a complaint: {complaint:?}");
    mount.start()?;
    check(&kept, "after everything")?;
    mount.unmount()
}

/// Some of everything that makes the daemon use its store.
fn work_on(
    mount: &Mount,
    session: u64,
    kept: &mut BTreeMap<PathBuf, Vec<u8>>,
    rng: &mut Rng,
) -> Outcome {
    let top = mount.path();
    kept.extend(durable_files(top, &format!("s{session}"), 6, rng)?);
    let path = |number: u64| top.join(format!("s{session}-{number}"));
    let renamed = top.join(format!("s{session}-renamed"));
    fs::rename(path(0), &renamed)?;
    let bytes = kept.remove(&path(0)).doing("the first file")?;
    kept.insert(renamed, bytes);
    fs::remove_file(path(1))?;
    kept.remove(&path(1));
    let piece = rng.bytes(100_000);
    let file = File::options().write(true).open(path(2))?;
    file.write_all_at(&piece, 300_000)?;
    file.set_len(500_000)?;
    file.sync_all()?;
    // What is open for writing does not settle.
    drop(file);
    let changed = kept.get_mut(&path(2)).doing("the third file")?;
    changed[300_000..400_000].copy_from_slice(&piece);
    changed.truncate(500_000);
    let words = "words that become smaller when they settle\n".repeat(40_000);
    let text = top.join(format!("s{session}-text"));
    fs::write(&text, &words)?;
    kept.insert(text, words.into_bytes());
    File::open(top)?.sync_all()?;
    shale().args(["settle", "--wait"]).arg(top).ok()?;
    shale()
        .args(["gc", "--wait", "--live", "99"])
        .arg(top)
        .ok()?;
    rustix::fs::statvfs(top)?;
    check(kept, "after the work")
}

/// As when the log is on a device that is full.
fn a_log_that_cannot_be_written(case: &Case) -> Outcome {
    std::os::unix::fs::symlink("/dev/full", case.work().join("fs.log"))?;
    let mut mount = case.mount("fs", &[])?;
    for _ in 0..20 {
        // The reason would be logged.
        let refused = rustix::fs::setxattr(
            mount.path(),
            "user.shale.codec",
            b"nonsense",
            rustix::fs::XattrFlags::empty(),
        );
        ensure_eq!(refused, Err(rustix::io::Errno::INVAL), "a bad attribute");
    }
    let kept = durable_files(mount.path(), "file", 3, &mut Rng::new(1))?;
    check(&kept, "with a log that cannot be written")?;
    mount.unmount()?;
    mount.fsck_is_clean()
}
