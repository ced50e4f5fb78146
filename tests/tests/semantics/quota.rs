//! Quotas of the device below are passed through.

use std::fs::{self, File};
use std::io::Write;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use shale_tests::{Case, Cmd, LoopFs, Mount, Outcome, Rng, ensure, ensure_eq};

/// Writes and syncs a file; the error may come from either.
fn write(path: &std::path::Path, bytes: &[u8]) -> Result<(), Errno> {
    let mut file = File::create(path).map_err(errno)?;
    file.write_all(bytes)
        .and_then(|()| file.sync_all())
        .map_err(errno)
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(0))
}

/// Btrfs, because its quotas need no kernel option.
pub(crate) fn quota(case: &Case) -> Outcome {
    let device = case.loop_fs("device", LoopFs::Btrfs, 512 << 20)?;
    let volume = device.path().join("volume");
    Cmd::new("btrfs")
        .args(["subvolume", "create"])
        .arg(&volume)
        .ok()?;
    Cmd::new("btrfs")
        .args(["quota", "enable"])
        .arg(device.path())
        .ok()?;
    Cmd::new("btrfs")
        .args(["qgroup", "limit", "64M"])
        .arg(&volume)
        .ok()?;
    let mut mount = Mount::new(
        volume.join("store"),
        case.work().join("fs"),
        &["--memory", "32M", "-o", "settle=off"],
    )?;
    let mut rng = Rng::new(1);
    let kept = rng.bytes(8 << 20);
    let first = write(&mount.path().join("kept"), &kept);
    ensure_eq!(first, Ok(()), "room for 8 MiB");
    let mut refused = None;
    for index in 0..16 {
        let path = mount.path().join(format!("more-{index}"));
        if let Err(errno) = write(&path, &rng.bytes(8 << 20)) {
            refused = Some(errno);
            break;
        }
    }
    ensure_eq!(
        refused,
        Some(Errno::EDQUOT),
        "the error of the file that did not fit"
    );
    ensure!(
        fs::read(mount.path().join("kept"))? == kept,
        "a synced file has changed"
    );
    // The administrator grants more; what waits in memory is written then.
    Cmd::new("btrfs")
        .args(["qgroup", "limit", "none"])
        .arg(&volume)
        .ok()?;
    let later = mount.path().join("later");
    let deadline = Instant::now() + Duration::from_secs(60);
    while let Err(errno) = write(&later, b"there is room again") {
        ensure!(
            Instant::now() < deadline,
            "still {errno} after the limit is gone"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    mount.unmount()?;
    mount.fsck_is_clean()?;
    mount.start()?;
    ensure!(
        fs::read(mount.path().join("kept"))? == kept,
        "a synced file has changed"
    );
    ensure_eq!(
        fs::read(&later)?,
        b"there is room again",
        "written after the limit was gone"
    );
    mount.unmount()
}
