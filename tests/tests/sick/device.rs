//! Devices that die or hang.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use shale_tests::{
    Case, Context, LoopFs, Mount, Outcome, Rng, Writer, alive, ensure, ensure_eq, note, rounds,
    seed, shale, tally,
};

use crate::{MIB, check, durable_files, errno_of};

const WRITERS: u64 = 3;

pub(crate) fn a_dead_device_is_reported(case: &Case) -> Outcome {
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

    // The handle whose data cannot be stored gets the error, again and again: the data is never
    // acknowledged.
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
    // A handle that wrote nothing gets no error.
    drop(innocent);
    drop((reader, writer));

    // The mount can be removed, and does not claim that everything is durable.
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

pub(crate) fn wait_gone(pid: i32) -> Outcome {
    let deadline = Instant::now() + Duration::from_secs(60);
    while alive(pid) {
        ensure!(Instant::now() < deadline, "the daemon does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

pub(crate) fn devices_that_die_under_load(case: &Case) -> Outcome {
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

pub(crate) fn a_hung_device_does_not_block_others(case: &Case) -> Outcome {
    let device = case.loop_fs("device", LoopFs::Ext4, 256 * MIB as u64)?;
    let store = device.path().join("store");
    let mut mount = Mount::new(store, case.work().join("fs"), &["--memory", "32M"])?;
    let mut rng = Rng::new(13);
    let kept = durable_files(mount.path(), "file", 4, &mut rng)?;
    check(&kept, "before")?;
    let noise = rng.bytes(2 * MIB);
    // In directories of their own: the kernel blocks look-ups in one where a name is being made.
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
pub(crate) fn very_many_who_wait(case: &Case) -> Outcome {
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
        ensure!(answered, "no other call was answered while the device hung");
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

/// A little of everything that makes the daemon use its store.
pub(crate) fn work_on(
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
