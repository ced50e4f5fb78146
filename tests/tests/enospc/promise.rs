//! Data that `write` accepted is stored, or the program gets an error and keeps getting it.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use rustix::fs::{FallocateFlags, fallocate};
use shale_tests::{
    Case, Cmd, Context, LoopFs, Mount, Outcome, Rng, ensure, ensure_eq, note, python, report,
    script, shale,
};

use crate::MIB;

/// Like netCDF-C with classic files: small pieces, `write` checked and `close` not. Returns the
/// accepted bytes, and the error that ended it.
pub(crate) fn write_pieces(
    path: &Path,
    bytes: &[u8],
    piece: usize,
) -> Outcome<(usize, Option<Errno>)> {
    let mut file = File::create(path)?;
    let mut accepted = 0;
    for part in bytes.chunks(piece) {
        match file.write(part) {
            Ok(count) => accepted += count,
            Err(e) => return Ok((accepted, e.raw_os_error().map(Errno::from_raw))),
        }
    }
    Ok((accepted, None))
}

/// Fails unless a file holds exactly the accepted bytes.
pub(crate) fn holds(path: &Path, bytes: &[u8], when: &str) -> Outcome {
    let found = fs::read(path)?;
    ensure_eq!(
        found.len(),
        bytes.len(),
        "{when}: size of {}",
        path.display()
    );
    ensure!(found == bytes, "{when}: {} has changed", path.display());
    Ok(())
}

pub(crate) fn small_pieces(case: &Case) -> Outcome {
    let device = case.loop_fs("device", LoopFs::Ext4, 300 << 20)?;
    let mut mount = Mount::new(device.path().join("store"), case.work().join("fs"), &[])?;
    let mut rng = Rng::new(51);
    let (first, second) = (rng.bytes(100 * MIB), rng.bytes(250 * MIB));
    let (a, b) = (mount.path().join("a"), mount.path().join("b"));
    fs::write(&a, &first)?;
    File::open(&a)?.sync_all()?;
    let (accepted, told) = write_pieces(&b, &second, 8192)?;
    note(format!("{} MiB accepted beside 100", accepted / MIB));
    ensure_eq!(told, Some(Errno::ENOSPC), "what `write` said");
    ensure!(
        accepted > 130 * MIB,
        "refused after {accepted} bytes on 300 MiB"
    );
    holds(&b, &second[..accepted], "while the device is full")?;
    mount.remount()?;
    holds(&a, &first, "after a remount")?;
    holds(&b, &second[..accepted], "after a remount")?;
    ensure!(
        !mount.log_text().contains("lost"),
        "something was lost:\n{}",
        mount.log_tail()
    );
    mount.unmount()?;
    mount.fsck_is_clean()
}

/// The kernel asks once for each call, however much that writes.
pub(crate) fn large_calls(case: &Case) -> Outcome {
    let device = case.loop_fs("device", LoopFs::Ext4, 200 << 20)?;
    let mut mount = Mount::new(device.path().join("store"), case.work().join("fs"), &[])?;
    let data = Rng::new(56).bytes(120 * MIB);
    let mut accepted = Vec::new();
    std::thread::scope(|scope| -> Outcome {
        let writers: Vec<_> = (0..3)
            .map(|index| {
                let path = mount.path().join(format!("file-{index}"));
                let data = &data;
                scope.spawn(move || write_pieces(&path, data, 60 * MIB))
            })
            .collect();
        for writer in writers {
            accepted.push(writer.join().expect("no panic")?);
        }
        Ok(())
    })?;
    note(format!("accepted: {accepted:?}"));
    let refused = accepted.iter().filter(|(_, told)| told.is_some()).count();
    ensure!(refused > 0, "360 MiB fit onto 200");
    mount.remount()?;
    for (index, (count, _)) in accepted.into_iter().enumerate() {
        let path = mount.path().join(format!("file-{index}"));
        holds(&path, &data[..count], "after a remount")?;
    }
    mount.unmount()?;
    mount.fsck_is_clean()
}

/// A header first, and all of the data at once in the next call.
pub(crate) fn header_and_data(case: &Case) -> Outcome {
    let device = case.loop_fs("device", LoopFs::Ext4, 200 << 20)?;
    let mut mount = Mount::new(device.path().join("store"), case.work().join("fs"), &[])?;
    let data = Rng::new(57).bytes(300 * MIB);
    let path = mount.path().join("file");
    let mut file = File::create(&path)?;
    file.write_all(&data[..4096])?;
    let told = file.write(&data[4096..]).err();
    ensure_eq!(
        told.and_then(|e| e.raw_os_error()),
        Some(libc::ENOSPC),
        "what the second call said"
    );
    // Reading and looking for the end is not writing.
    let mut both = File::options().read(true).write(true).open(&path)?;
    let mut found = Vec::new();
    both.read_to_end(&mut found)?;
    ensure!(found == data[..4096], "contents while the device is full");
    ensure_eq!(both.seek(SeekFrom::End(0))?, 4096, "where the end is");
    drop((file, both));
    mount.remount()?;
    holds(&path, &data[..4096], "after a remount")?;
    mount.unmount()?;
    mount.fsck_is_clean()
}

/// Fills the device and returns the path of the file that does.
fn fill(top: &Path, rng: &mut Rng) -> Outcome<std::path::PathBuf> {
    let path = top.join("filler");
    let (_, told) = write_pieces(&path, &rng.bytes(300 * MIB), MIB)?;
    ensure_eq!(told, Some(Errno::ENOSPC), "what filling the device said");
    File::open(&path)?.sync_all()?;
    Ok(path)
}

/// Makes a program write more through a mapping than fits; fails if it gets no error. The kernel
/// does not ask before it dirties pages of a mapping, so they can overrun a full device.
fn overrun(case: &Case, path: &Path, bytes: &[u8]) -> Outcome<Vec<Range<usize>>> {
    let source = case.work().join("source");
    fs::write(&source, bytes)?;
    let writer = Cmd::new(python()).arg(script("mapped_writer.py"));
    let finished = writer.arg(path).arg(&source).run()?;
    ensure!(!finished.status.success(), "the program was not told");
    let lost = lost_ranges(path)?;
    ensure!(!lost.is_empty(), "nothing was lost");
    Ok(lost)
}

/// The lost ranges of a file, as an attribute lists them.
fn lost_ranges(path: &Path) -> Outcome<Vec<Range<usize>>> {
    let text = report(path, "lost")?;
    let mut ranges = Vec::new();
    for range in text.split(',').filter(|range| !range.is_empty()) {
        let (start, end) = range.split_once('-').doing("reading a range")?;
        ranges.push(start.parse()?..end.parse()?);
    }
    Ok(ranges)
}

fn sync(path: &Path) -> Outcome<Option<i32>> {
    Ok(File::open(path)?
        .sync_all()
        .err()
        .and_then(|e| e.raw_os_error()))
}

pub(crate) fn lost_pages(case: &Case) -> Outcome {
    let device = case.loop_fs("device", LoopFs::Ext4, 200 << 20)?;
    let store = device.path().join("store");
    let mut mount = Mount::new(store, case.work().join("fs"), &["--memory", "32M"])?;
    let mut rng = Rng::new(52);
    let filler = fill(mount.path(), &mut rng)?;
    let path = mount.path().join("mapped");
    let bytes = rng.bytes(120 * MIB);
    let lost = overrun(case, &path, &bytes)?;
    note(format!("lost: {lost:?}"));
    for attempt in 0..3 {
        ensure_eq!(sync(&path)?, Some(libc::ENOSPC), "fsync {attempt}");
    }
    // Only stored data is served.
    let file = File::open(&path)?;
    let mut page = vec![0; 4096];
    for at in (0..bytes.len()).step_by(64 << 10) {
        let is_lost = lost.iter().any(|range| range.contains(&at));
        match file.read_exact_at(&mut page, at as u64) {
            Ok(()) => {
                ensure!(!is_lost, "what was lost at {at} is served");
                let unwritten = page.iter().all(|byte| *byte == 0);
                ensure!(
                    unwritten || page == bytes[at..at + 4096],
                    "wrong bytes at {at}"
                );
            }
            Err(e) => {
                ensure_eq!(e.raw_os_error(), Some(libc::EIO), "reading at {at}");
                ensure!(is_lost, "what was not lost at {at} cannot be read");
            }
        }
    }
    drop(file);
    let report = shale().arg("stat").arg(&path).ok()?;
    ensure!(
        report.contains("lost"),
        "`shale stat` says nothing:\n{report}"
    );

    // Room alone restores nothing.
    fs::remove_file(&filler)?;
    for attempt in 0..3 {
        ensure_eq!(
            sync(&path)?,
            Some(libc::ENOSPC),
            "fsync {attempt} with room"
        );
    }
    let warned = |line: &str| line.contains("mapped") && line.contains("are lost");
    ensure!(
        mount.log_text().lines().any(warned),
        "no line of the log names the file:\n{}",
        mount.log_tail()
    );
    let finished = shale().arg("unmount").arg(mount.path()).run()?;
    ensure!(
        !finished.status.success(),
        "unmount says nothing of lost data"
    );
    ensure!(
        finished.stderr.contains("mapped"),
        "unmount does not name the file: {}",
        finished.stderr
    );
    mount.start()?;
    mount.unmount()?;
    mount.fsck_is_clean()
}

/// Lost data can be written again, or cut off; then everything works again.
pub(crate) fn lost_pages_come_back(case: &Case) -> Outcome {
    let device = case.loop_fs("device", LoopFs::Ext4, 200 << 20)?;
    let store = device.path().join("store");
    let mut mount = Mount::new(store, case.work().join("fs"), &["--memory", "32M"])?;
    let mut rng = Rng::new(53);
    let filler = fill(mount.path(), &mut rng)?;
    let bytes = rng.bytes(100 * MIB);
    let (again, cut) = (mount.path().join("again"), mount.path().join("cut"));
    for path in [&again, &cut] {
        overrun(case, path, &bytes)?;
    }
    fs::remove_file(&filler)?;
    let file = File::options().write(true).open(&cut)?;
    file.set_len(0)?;
    file.write_all_at(b"short", 0)?;
    // The kernel itself reports an error once that the program did not live to see.
    let _ = file.sync_all();
    file.sync_all()?;
    drop(file);
    let file = File::options().write(true).open(&again)?;
    for attempt in 0..3 {
        let synced = file.sync_all();
        ensure!(
            synced.is_err(),
            "fsync {attempt} before anything was written again"
        );
    }
    for (at, part) in bytes.chunks(MIB).enumerate() {
        file.write_all_at(part, (at * MIB) as u64)?;
    }
    file.sync_all()?;
    drop(file);
    holds(&again, &bytes, "written again")?;
    mount.remount()?;
    holds(&again, &bytes, "after a remount")?;
    holds(&cut, b"short", "after a remount")?;
    mount.unmount()?;
    mount.fsck_is_clean()
}

/// The stored size counts, not the written one.
pub(crate) fn compressible(case: &Case) -> Outcome {
    let device = case.loop_fs("device", LoopFs::Ext4, 200 << 20)?;
    let mut mount = Mount::new(device.path().join("store"), case.work().join("fs"), &[])?;
    let bytes: Vec<u8> = (0..25 * MIB)
        .flat_map(|i| ((i as f32) * 1e-4).sin().to_le_bytes())
        .map(|byte| byte & 0xf0)
        .collect();
    // Five times what the device has, and a third of it when it is stored.
    for index in 0..5 {
        let path = mount.path().join(format!("equal-{index}"));
        let (accepted, told) = write_pieces(&path, &bytes, MIB)?;
        ensure_eq!(
            told,
            None,
            "file {index} was refused after {} MiB",
            accepted / MIB
        );
    }
    mount.remount()?;
    for index in 0..5 {
        holds(
            &mount.path().join(format!("equal-{index}")),
            &bytes,
            "after a remount",
        )?;
    }
    mount.unmount()?;
    mount.fsck_is_clean()
}

/// Two independent mounts fill one device.
pub(crate) fn two_mounts(case: &Case) -> Outcome {
    let device = case.loop_fs("device", LoopFs::Ext4, 300 << 20)?;
    let mut mounts = Vec::new();
    for name in ["one", "two"] {
        let store = device.path().join(name);
        mounts.push(Mount::new(store, case.work().join(name), &[])?);
    }
    let data = Rng::new(54).bytes(300 * MIB);
    let mut accepted = Vec::new();
    std::thread::scope(|scope| -> Outcome {
        let writers: Vec<_> = mounts
            .iter()
            .map(|mount| {
                let path = mount.path().join("file");
                let data = &data;
                scope.spawn(move || write_pieces(&path, data, 100_000))
            })
            .collect();
        for writer in writers {
            let (count, told) = writer.join().expect("no panic")?;
            ensure_eq!(told, Some(Errno::ENOSPC), "what `write` said");
            accepted.push(count);
        }
        Ok(())
    })?;
    note(format!("accepted: {accepted:?}"));
    for (mount, &count) in mounts.iter_mut().zip(&accepted) {
        mount.remount()?;
        holds(
            &mount.path().join("file"),
            &data[..count],
            "after a remount",
        )?;
        mount.unmount()?;
        mount.fsck_is_clean()?;
    }
    Ok(())
}

/// Another program takes all free space of the device, to the last block, while a writer writes.
pub(crate) fn other_program(case: &Case) -> Outcome {
    let device = case.loop_fs("device", LoopFs::Ext4, 300 << 20)?;
    let mut mount = Mount::new(device.path().join("store"), case.work().join("fs"), &[])?;
    let data = Rng::new(55).bytes(300 * MIB);
    let path = mount.path().join("file");
    let glutton = File::create(device.path().join("glutton"))?;
    let done = AtomicBool::new(false);
    let (accepted, told) = std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut size, mut step) = (0, 8 << 20);
            while !done.load(Ordering::SeqCst) && step >= 4096 {
                match fallocate(&glutton, FallocateFlags::empty(), size, step) {
                    Ok(()) => size += step,
                    Err(_) => step /= 2,
                }
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        });
        let written = write_pieces(&path, &data, 20_000);
        done.store(true, Ordering::SeqCst);
        written
    })?;
    note(format!("{} MiB accepted", accepted / MIB));
    ensure_eq!(told, Some(Errno::ENOSPC), "what `write` said");
    // All accepted data has its place; only a clean shutdown needs a little room.
    let mut found = Vec::new();
    File::open(&path)?.read_to_end(&mut found)?;
    ensure!(
        found == data[..accepted],
        "contents differ while the device is full"
    );
    fs::remove_file(device.path().join("glutton"))?;
    drop(glutton);
    mount.remount()?;
    holds(&path, &data[..accepted], "after a remount")?;
    mount.unmount()?;
    mount.fsck_is_clean()
}
