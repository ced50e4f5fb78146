//! Transfers that a signal interrupts or that the device cuts short.

use std::collections::BTreeMap;
use std::fs::{self};
use std::time::Duration;

use shale_tests::{Case, Cmd, Context, Failure, Outcome, Rng, ensure, note, script, shale};

use crate::check;
use crate::device::work_on;

pub(crate) fn interrupted(case: &Case) -> Outcome {
    let calls = [
        "pread64",
        "pwrite64",
        "write",
        "fsync",
        "fdatasync",
        "open64",
        "ftruncate64",
        "fallocate64",
        "rename",
        "unlink",
        "opendir",
        "statvfs64",
    ];
    live_interrupted(case, &[], &calls)
}

pub(crate) fn interrupted_mapped(case: &Case) -> Outcome {
    let calls = ["pread64", "pwrite64", "fdatasync", "fallocate64", "msync"];
    live_interrupted(case, &["--backing", "pmem"], &calls)
}

/// Many calls of a daemon to the file system of its store are interrupted, and every transfer is
/// cut in half, from its start to its end. Programs notice nothing.
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
