//! Devices that go away under a mount: callers that need the device get an error, others do not,
//! and nothing acknowledged is lost when the device comes back.

mod device;
mod presence;
mod transfers;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use shale_tests::{Case, Context, Failure, Need, Outcome, Rng, Suite, ensure, ensure_eq};

const MIB: usize = 1 << 20;

fn main() -> ExitCode {
    Suite::new("sick")
        .need(Need::Shale)
        .need(Need::Command("cc"))
        .limit(Duration::from_secs(300))
        .test(
            "a_store_out_of_sight_is_still_the_store",
            presence::a_store_out_of_sight_is_still_the_store,
        )
        .test(
            "a_moved_store_keeps_working",
            presence::a_store_that_is_moved,
        )
        .test(
            "a_removed_store_is_reported",
            presence::a_store_that_is_removed,
        )
        .test(
            "a_dead_device_is_reported",
            device::a_dead_device_is_reported,
        )
        .test(
            "devices_that_die_under_load_keep_what_was_acknowledged",
            device::devices_that_die_under_load,
        )
        .test(
            "a_hung_device_does_not_block_others",
            device::a_hung_device_does_not_block_others,
        )
        .test(
            "many_waiters_for_a_device_do_not_block_others",
            device::very_many_who_wait,
        )
        .test(
            "a_log_that_cannot_be_written_does_no_harm",
            a_log_that_cannot_be_written,
        )
        .test(
            "interrupted_and_short_transfers_are_finished",
            transfers::interrupted,
        )
        .test(
            "interrupted_and_short_transfers_of_mapped_packs_are_finished",
            transfers::interrupted_mapped,
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
