//! A full backing device: the application gets an error, nothing durable is harmed,
//! and deleting makes room again.

mod libraries;
mod patterns;
mod promise;
mod random;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::IntoRawFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use shale_tests::{
    Case, Failure, LoopFs, Mount, Outcome, Rng, Suite, ensure, ensure_eq, note, on_ext4,
};

const MIB: usize = 1 << 20;

fn main() -> ExitCode {
    Suite::new("enospc")
        .limit(Duration::from_secs(400))
        .test("synced_files_survive_a_full_device", |case| {
            fill(case, LoopFs::Ext4, true)
        })
        .test(
            "unsynced_writers_get_an_error_and_synced_files_survive",
            |case| fill(case, LoopFs::Ext4, false),
        )
        .test("a_full_device_whose_space_lags_can_be_emptied", |case| {
            fill(case, LoopFs::Btrfs, false)
        })
        .test(
            "a_program_that_ignores_close_gets_enospc_from_write",
            promise::small_pieces,
        )
        .test(
            "calls_that_write_many_megabytes_are_refused_as_a_whole",
            promise::large_calls,
        )
        .test(
            "a_large_call_right_after_a_small_one_is_refused",
            promise::header_and_data,
        )
        .test(
            "lost_pages_fail_every_fsync_and_are_not_served",
            promise::lost_pages,
        )
        .test(
            "lost_pages_can_be_written_again_or_cut_off",
            promise::lost_pages_come_back,
        )
        .test(
            "compressible_files_are_judged_by_what_is_stored",
            promise::compressible,
        )
        .test(
            "two_mounts_on_one_device_keep_what_they_accepted",
            promise::two_mounts,
        )
        .test(
            "a_device_filled_by_others_keeps_what_was_accepted",
            promise::other_program,
        )
        .test(
            "small_files_of_several_programs_until_the_device_is_full",
            patterns::many_small_files,
        )
        .test("holes_can_be_filled_again", patterns::punch_and_refill)
        .test(
            "fallocate_near_the_end_keeps_its_word",
            patterns::fallocate_near_the_end,
        )
        .test(
            "a_full_device_can_be_overwritten_in_place",
            patterns::overwrite_in_place,
        )
        .test(
            "deleted_space_can_be_used_at_once",
            patterns::delete_and_reuse,
        )
        .test(
            "libraries_raise_an_exception_as_on_ext4",
            libraries::exceptions,
        )
        .test("random_programs_lose_nothing_silently", random::programs)
        .run()
}

/// Writes a file of noise; the error may come from write, fsync or close.
fn write_file(path: &Path, bytes: &[u8], sync: bool) -> Result<(), Errno> {
    let raw = |error: std::io::Error| Errno::from_raw(error.raw_os_error().unwrap_or(0));
    let mut file = File::create(path).map_err(raw)?;
    let mut result = bytes
        .chunks(128 << 10)
        .try_for_each(|piece| file.write_all(piece))
        .map_err(raw);
    if result.is_ok() && sync {
        result = file.sync_all().map_err(raw);
    }
    let closed = nix::unistd::close(file.into_raw_fd());
    result.and(closed)
}

fn check(kept: &BTreeMap<PathBuf, Vec<u8>>, when: &str) -> Outcome {
    for (path, bytes) in kept {
        let found = fs::read(path).map_err(|error| {
            Failure::new(format!("{when}: reading {}: {error}", path.display()))
        })?;
        ensure!(found == *bytes, "{when}: {} has changed", path.display());
    }
    Ok(())
}

fn fill(case: &Case, kind: LoopFs, sync: bool) -> Outcome {
    let size = match kind {
        LoopFs::Ext4 => 200,
        LoopFs::Btrfs | LoopFs::Xfs => 400,
    };
    let device = case.loop_fs("device", kind, (size * MIB) as u64)?;
    // Without ShaleFS the device itself is under test.
    let mut mount = if on_ext4() {
        None
    } else {
        let store = device.path().join("store");
        Some(Mount::new(
            store,
            case.work().join("fs"),
            &["--memory", "32M"],
        )?)
    };
    let top = mount
        .as_ref()
        .map_or(device.path(), Mount::path)
        .to_path_buf();
    let mut rng = Rng::new(41);
    let mut kept = BTreeMap::new();
    for index in 0..5 {
        let (path, bytes) = (top.join(format!("durable-{index}")), rng.bytes(8 * MIB));
        write_file(&path, &bytes, true)
            .map_err(|errno| Failure::new(format!("room for 40 MiB: {errno}")))?;
        kept.insert(path, bytes);
    }
    File::open(&top)?.sync_all()?;

    let mut doomed = Vec::new();
    let mut told = None;
    for index in 0..200 {
        let (path, bytes) = (top.join(format!("more-{index}")), rng.bytes(8 * MIB));
        doomed.push(path.clone());
        match write_file(&path, &bytes, sync) {
            Ok(()) if sync => {
                kept.insert(path, bytes);
            }
            Ok(()) => {}
            Err(errno) => {
                told = Some((index, errno));
                break;
            }
        }
    }
    let Some((index, errno)) = told else {
        return Err(Failure::new(format!(
            "1.6 GiB of noise went onto a device of {size} MiB without an error"
        )));
    };
    note(format!("told after {} MiB: {errno}", 40 + index * 8));
    ensure_eq!(
        errno,
        Errno::ENOSPC,
        "the error that reached the application"
    );
    check(&kept, "while the device is full")?;

    // Metadata still works: what makes room must be possible.
    ensure_eq!(
        entries(&top)?,
        5 + doomed.len(),
        "entries while the device is full"
    );
    for path in doomed.iter().rev() {
        fs::remove_file(path)?;
        kept.remove(path);
    }
    // Room comes back when it has been reclaimed, which may take a moment.
    let (path, bytes) = (top.join("afterwards"), rng.bytes(48 * MIB));
    let deadline = Instant::now() + Duration::from_secs(120);
    let begun = Instant::now();
    loop {
        match write_file(&path, &bytes, true) {
            Ok(()) => break,
            Err(Errno::ENOSPC) => ensure!(
                Instant::now() < deadline,
                "no room for 48 MiB, 120 s after {} MiB were deleted",
                doomed.len() * 8
            ),
            Err(errno) => return Err(Failure::new(format!("writing after deletion: {errno}"))),
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    note(format!(
        "room again after {:.1} s",
        begun.elapsed().as_secs_f64()
    ));
    kept.insert(path, bytes);
    check(&kept, "after writing again")?;
    let Some(mount) = &mut mount else {
        return Ok(());
    };
    mount.unmount()?;
    mount.fsck_is_clean()?;
    mount.start()?;
    check(&kept, "after a remount")?;
    ensure_eq!(entries(&top)?, kept.len(), "entries after a remount");
    mount.unmount()?;
    mount.fsck_is_clean()
}

fn entries(top: &Path) -> Outcome<usize> {
    Ok(fs::read_dir(top)?
        .flatten()
        .filter(|entry| entry.file_name() != "lost+found")
        .count())
}
