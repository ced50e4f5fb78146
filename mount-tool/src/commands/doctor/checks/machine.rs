//! Checks of the machine.

use super::Check;
use super::Verdict::{Advice, Ok, Problem};
use crate::commands::doctor::facts::MachineFacts;
use crate::output::size;

/// The oldest kernel whose FUSE has the features that the daemon needs.
const KERNEL: (u32, u32) = (5, 11);
/// Enough for the packs that are kept open, and as many again for the rest.
pub(super) const OPEN_FILES_NEEDED: u64 = 512;
const OPEN_FILES_GOOD: u64 = 4096;
/// RAM that leaves the daemon little beside its smallest budget.
const RAM_SMALL: u64 = 512 << 20;

pub(super) fn kernel(machine: &MachineFacts) -> Check {
    let mut numbers = machine.kernel.split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next().and_then(|text| text.parse::<u32>().ok());
    let release = &machine.kernel;
    let (verdict, finding) = match number().zip(number()) {
        Some(version) if version >= KERNEL => (Ok, format!("Linux {release}")),
        Some(_) => (
            Problem,
            format!(
                "Linux {release} is too old for the FUSE features that ShaleFS needs; install {}.{} or \
                 newer",
                KERNEL.0, KERNEL.1
            ),
        ),
        None => (
            Advice,
            format!(
                "cannot read the kernel version from '{release}'; make sure that it is {}.{} or newer",
                KERNEL.0, KERNEL.1
            ),
        ),
    };
    Check::new("kernel", verdict, finding)
}

pub(super) fn fuse(machine: &MachineFacts) -> Check {
    match &machine.fuse {
        Result::Ok(()) => Check::new("fuse", Ok, "/dev/fuse can be opened"),
        Err(why) => Check::new(
            "fuse",
            Problem,
            format!(
                "cannot open /dev/fuse: {why}; load the module with 'modprobe fuse', open the device \
                 to all users ('chmod 666 /dev/fuse'), or pass it to the container"
            ),
        ),
    }
}

pub(super) fn fusermount(machine: &MachineFacts) -> Check {
    let (verdict, finding) = match (machine.fusermount, machine.root) {
        (true, _) => (Ok, "fusermount3 is installed: ordinary users can mount"),
        (false, true) => (
            Advice,
            "fusermount3 is missing, so only root can mount; install the package fuse3",
        ),
        (false, false) => (
            Problem,
            "fusermount3 is missing, so you cannot mount; install the package fuse3",
        ),
    };
    Check::new("fusermount", verdict, finding)
}

pub(super) fn open_files(machine: &MachineFacts) -> Check {
    let limit = machine.open_files;
    let raise = "raise it in /etc/security/limits.conf (nofile), or with LimitNOFILE= in the unit";
    let (verdict, finding) = if limit < OPEN_FILES_NEEDED {
        (
            Problem,
            format!("{limit} open files are too few for the packs of a store; {raise}"),
        )
    } else if limit < OPEN_FILES_GOOD {
        (
            Advice,
            format!("{limit} open files are few if many files are in use; {raise}"),
        )
    } else {
        (Ok, format!("up to {limit}"))
    };
    Check::new("open files", verdict, finding)
}

pub(super) fn memory(machine: &MachineFacts) -> Check {
    let ram = size::human(machine.ram);
    if machine.ram < RAM_SMALL {
        Check::new(
            "memory",
            Advice,
            format!(
                "this machine or control group has only {ram} of memory; mount with a small budget \
                 such as --memory 64M, or raise the limit"
            ),
        )
    } else {
        Check::new("memory", Ok, format!("{ram} for this machine or job"))
    }
}
