//! Removes everything that a test left behind, found by its unique directory.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::is_sanitized;

/// The environment variable that marks everything a test starts.
pub(crate) const MARK: &str = "SHALE_TEST_DIR";

/// Ends processes, mounts and loop devices that belong to the test directory `work`, and reports
/// what it had to end. The directory itself stays.
pub fn sweep(work: &Path) -> Vec<String> {
    let mut found = Vec::new();
    // Lazy first: a process stuck in a dead mount cannot be waited for.
    for mountpoint in mounts_below(work) {
        found.push(format!("mount {}", mountpoint.display()));
        let _ = umount2(&mountpoint, MntFlags::MNT_DETACH);
    }
    let processes = processes_of(work);
    for (pid, name) in &processes {
        // A daemon that has ended has not waited for it.
        if !(is_sanitized() && name == "llvm-symbolizer") {
            found.push(format!("process {pid} ({name})"));
        }
        let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
    }
    let deadline = Instant::now() + Duration::from_secs(10);
    while !processes_of(work).is_empty() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    for device in loop_devices_of(work) {
        found.push(format!("loop device {}", device.display()));
        let _ = std::process::Command::new("losetup")
            .arg("-d")
            .arg(&device)
            .status();
    }
    found
}

/// Mountpoints at or below a directory, innermost first.
pub(crate) fn mounts_below(directory: &Path) -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut found: Vec<PathBuf> = table
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(|field| PathBuf::from(field.replace("\\040", " ")))
        .filter(|path| path.starts_with(directory))
        .collect();
    found.reverse();
    found
}

fn processes_of(work: &Path) -> Vec<(i32, String)> {
    let mark = [MARK.as_bytes(), b"=", work.as_os_str().as_bytes()].concat();
    let me = std::process::id() as i32;
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| *pid != me)
        .filter(|pid| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment
                .split(|byte| *byte == 0)
                .any(|item| item == mark)
        })
        .map(|pid| {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            (pid, name.trim().to_string())
        })
        .collect()
}

fn loop_devices_of(work: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir("/sys/block") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter(|entry| {
            let backing = fs::read_to_string(entry.path().join("loop/backing_file"));
            backing.is_ok_and(|path| Path::new(path.trim_end()).starts_with(work))
        })
        .map(|entry| Path::new("/dev").join(entry.file_name()))
        .collect()
}
