//! The benchmark harness: its own tests, every workload once with tiny sizes, and nothing left
//! behind when it is interrupted.

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use shale_tests::{Case, Cmd, Context, Need, Outcome, Suite, binary, ensure, python, root};

fn main() -> ExitCode {
    Suite::new("bench")
        .need(Need::Root)
        .need(Need::Shale)
        .need(Need::File(python()))
        .need(Need::Command("mkfs.btrfs"))
        .need(Need::Command("compsize"))
        .need(Need::Command("bindfs"))
        .limit(Duration::from_secs(300))
        .test("statistics_targets_and_tables_are_right", units)
        .test("every_workload_runs_and_verifies", smoke)
        .test(
            "a_run_interrupted_behind_a_mount_leaves_nothing",
            interrupted_behind_a_mount,
        )
        .test(
            "a_run_interrupted_while_it_writes_leaves_nothing",
            interrupted_while_it_writes,
        )
        .run()
}

fn units(_case: &Case) -> Outcome {
    let arguments = [
        "-B",
        "-m",
        "unittest",
        "discover",
        "-t",
        ".",
        "-s",
        "bench/tests",
    ];
    Cmd::new(python())
        .args(arguments)
        .cwd(root())
        .run()?
        .success()?;
    Ok(())
}

fn harness(case: &Case, scale: &str) -> Outcome<Cmd> {
    let work = case.work().join("bench");
    Ok(Cmd::new(python())
        .args(["-B", "-m", "bench", "--scale", scale, "--work"])
        .arg(&work)
        .arg("--results")
        .arg(work.join("results"))
        .cwd(root())
        .env("SHALE_BIN", binary()))
}

fn smoke(case: &Case) -> Outcome {
    harness(case, "smoke")?
        .limit(Duration::from_secs(280))
        .run()?
        .success()?;
    let results = case.work().join("bench/results");
    let text = fs::read_to_string(results.join("smoke.md")).doing("reading the results")?;
    let modules = fs::read_dir(root().join("bench/workloads"))?.count();
    let sections = text.lines().filter(|line| line.starts_with("### ")).count();
    // Two modules are no workloads, and the targets are a section.
    ensure!(
        sections + 1 >= modules - 2,
        "{sections} sections for {modules} modules:\n{text}"
    );
    Ok(())
}

/// How many mounts a process sees below a directory: the harness has a namespace of its own.
fn mounts_below(directory: &Path, process: u32) -> Outcome<usize> {
    let below = format!(" {}/", directory.display());
    let table = fs::read_to_string(format!("/proc/{process}/mountinfo"))?;
    Ok(table.lines().filter(|line| line.contains(&below)).count())
}

/// How many files a process has open below a directory.
fn open_below(directory: &Path, process: u32) -> Outcome<usize> {
    let open = fs::read_dir(format!("/proc/{process}/fd"))?;
    // One that cannot be read has been closed meanwhile.
    let targets = open.flatten().flat_map(|entry| fs::read_link(entry.path()));
    Ok(targets
        .filter(|target| target.starts_with(directory))
        .count())
}

fn interrupted_behind_a_mount(case: &Case) -> Outcome {
    let work = case.work().join("bench");
    // ShaleFS over ext4: two mounts at once.
    interrupted(case, |harness| Ok(mounts_below(&work, harness)? >= 2))
}

fn interrupted_while_it_writes(case: &Case) -> Outcome {
    let work = case.work().join("bench");
    let mount = work.join("mounts/mount");
    interrupted(case, |harness| {
        Ok(mounts_below(&work, harness)? >= 2 && open_below(&mount, harness)? > 0)
    })
}

/// Interrupts the harness as soon as `now`, given its process id, returns true.
fn interrupted(case: &Case, now: impl Fn(u32) -> Outcome<bool>) -> Outcome {
    let work = case.work().join("bench");
    let mut child = harness(case, "smoke")?.spawn()?;
    let begun = Instant::now();
    while !now(child.id())? {
        ensure!(
            child.try_wait()?.is_none(),
            "it ended before it was interrupted"
        );
        ensure!(
            begun.elapsed() < Duration::from_secs(120),
            "it mounts nothing"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    kill(Pid::from_raw(child.id().try_into()?), Signal::SIGTERM)?;
    let status = child.wait()?;
    ensure!(status.code() == Some(143), "it ended with {status}");
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name().into_string().unwrap_or_default();
        if let Ok(process) = name.parse() {
            // One that cannot be asked has ended.
            let left = mounts_below(&work, process).unwrap_or(0);
            ensure!(left == 0, "process {process} still has {left} mounts");
        }
    }
    ensure!(!work.join("device.img").exists(), "the image is left");
    let attached = Cmd::new("losetup").args(["-n", "-O", "BACK-FILE"]).ok()?;
    ensure!(
        !attached.contains(&work.display().to_string()),
        "a loop device is left:\n{attached}"
    );
    Ok(())
}
