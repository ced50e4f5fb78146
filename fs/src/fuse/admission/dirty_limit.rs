//! Limits how much data of a mount the kernel may hold dirty.
//!
//! The kernel limits the dirty pages of each FUSE mount to a share of the memory that may be dirty
//! at all (1 % by default). The store holds that much of the device. On a small device a daemon of
//! root lowers the limit for its own mount, and touches nothing else of the system.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

/// The kernel may hold this fraction of the device dirty, if the daemon may set it.
const DEVICE_SHARE: u64 = 64;
/// With less, writing through the cache would crawl.
const LIMIT_MIN: u64 = 2 << 20;
/// Pages that each of several writers may add before it is stopped.
const SLACK: u64 = 1 << 20;
/// The kernel's own share for FUSE, in millionths of the memory that may be dirty.
const USUAL_SHARE: u64 = 10_000;
const WHOLE: u64 = 1_000_000;

/// Limits the dirty data of a mount on a device of this size; returns the limit.
pub(crate) fn bound(mountpoint: &Path, device: u64) -> u64 {
    let dirtyable = dirtyable();
    // Only what the kernel knows. A request to this daemon itself would keep a killed daemon, and
    // with it the mount, for ever: its last thread would wait for the threads that have died.
    let Ok(mount) = statx(
        CWD,
        mountpoint,
        AtFlags::STATX_DONT_SYNC,
        StatxFlags::empty(),
    ) else {
        return dirtyable / 100 + SLACK;
    };
    let (major, minor) = (mount.stx_dev_major, mount.stx_dev_minor);
    let knobs = PathBuf::from(format!("/sys/class/bdi/{major}:{minor}"));
    limit(&knobs, dirtyable, (device / DEVICE_SHARE).max(LIMIT_MIN)) + SLACK
}

/// The limit of a mount after an attempt to lower it to `wanted`.
fn limit(knobs: &Path, dirtyable: u64, wanted: u64) -> u64 {
    let set = |knob: &str, value: u64| fs::write(knobs.join(knob), value.to_string()).is_ok();
    // Older kernels have no such knob, and are always strict with FUSE.
    let strict = number(&knobs.join("strict_limit")).is_none_or(|strict| strict == 1)
        || set("strict_limit", 1);
    if !strict {
        return dirtyable;
    }
    let share = || {
        number(&knobs.join("max_ratio_fine"))
            .or_else(|| Some(number(&knobs.join("max_ratio"))? * (WHOLE / 100)))
            .unwrap_or(USUAL_SHARE)
    };
    let bytes = |share: u64| (u128::from(dirtyable) * u128::from(share) / u128::from(WHOLE)) as u64;
    let usual = bytes(share());
    if usual > wanted && set("max_bytes", wanted) {
        return bytes(share());
    }
    usual
}

/// Bytes of memory that may be dirty at most.
fn dirtyable() -> u64 {
    if let Some(bytes) = number(Path::new("/proc/sys/vm/dirty_bytes")).filter(|&bytes| bytes > 0) {
        return bytes;
    }
    let percent = number(Path::new("/proc/sys/vm/dirty_ratio")).unwrap_or(20);
    memory() / 100 * percent
}

fn memory() -> u64 {
    let info = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = info.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.map_or(1 << 40, |kib| kib << 10)
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn knobs(values: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (name, value) in values {
            fs::write(dir.path().join(name), value).unwrap();
        }
        dir
    }

    #[test]
    fn the_share_of_memory_bounds_it() {
        let dir = knobs(&[("strict_limit", "1\n"), ("max_ratio_fine", "10000\n")]);
        assert_eq!(limit(dir.path(), 1000 * MIB, 64 * MIB), 10 * MIB);
    }

    #[test]
    fn an_old_kernel_has_whole_percents() {
        let dir = knobs(&[("max_ratio", "2\n")]);
        assert_eq!(limit(dir.path(), 1000 * MIB, 64 * MIB), 20 * MIB);
    }

    #[test]
    fn a_small_device_lowers_it() {
        let dir = knobs(&[("strict_limit", "1\n"), ("max_ratio_fine", "10000\n")]);
        limit(dir.path(), 1000 * MIB, 4 * MIB);
        let asked = fs::read_to_string(dir.path().join("max_bytes")).unwrap();
        assert_eq!(asked, (4 * MIB).to_string());
    }

    #[test]
    fn a_mount_without_a_strict_limit_gets_one() {
        let dir = knobs(&[("strict_limit", "0\n"), ("max_ratio_fine", "10000\n")]);
        assert_eq!(limit(dir.path(), 1000 * MIB, 64 * MIB), 10 * MIB);
        assert_eq!(number(&dir.path().join("strict_limit")), Some(1));
    }

    #[test]
    fn memory_that_may_be_dirty_is_known() {
        assert!(dirtyable() > MIB && dirtyable() <= memory());
    }
}
