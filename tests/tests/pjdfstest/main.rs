//! pjdfstest on ext4 and on ShaleFS: every test that passes there must pass here.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use shale_tests::{Case, Cmd, Failure, LoopFs, Need, Outcome, Suite, ensure, note, tally, tool};

/// Every Debian has these two users.
const CONFIGURATION: &str = r#"
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}

[settings]
naptime = 0.02
allow_remount = false

[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"#;

/// Tests that pjdfstest itself declines to run on any FUSE file system, and why.
/// They must be skipped there; a failure is a failure.
const NOT_ON_FUSE: [(&str, &str); 1] = [(
    "link::link_count_max",
    "glibc knows the largest number of links by the type of a file system, and of FUSE it knows none",
)];

fn main() -> ExitCode {
    Suite::new("pjdfstest")
        .need(Need::File(tool("pjdfstest")))
        .limit(Duration::from_secs(400))
        .test("what_passes_on_ext4_passes_here", compare)
        .run()
}

/// Runs all tests in a directory; returns the verdict of each and the whole output.
fn run(
    configuration: &Path,
    directory: &Path,
    elsewhere: &Path,
) -> Outcome<(BTreeMap<String, String>, String)> {
    let output = Cmd::new(tool("pjdfstest"))
        .arg("-c")
        .arg(configuration)
        .arg("-p")
        .arg(directory)
        .arg("-s")
        .arg(elsewhere)
        .env("NO_COLOR", "1")
        .env("RUST_BACKTRACE", "0")
        .limit(Duration::from_secs(300))
        .run()?
        .text();
    let mut verdicts = BTreeMap::new();
    for line in output
        .lines()
        .filter(|line| !line.starts_with(char::is_whitespace))
    {
        if let Some((name, verdict)) = line.rsplit_once(' ')
            && ["ok", "FAILED", "skipped"].contains(&verdict)
        {
            verdicts.insert(name.trim().to_string(), verdict.to_string());
        }
    }
    // A run that broke off must not look like one with few tests.
    ensure!(
        output.contains("Summary:"),
        "pjdfstest did not finish in {}:\n{output}",
        directory.display()
    );
    Ok((verdicts, output))
}

fn count(verdicts: &BTreeMap<String, String>, wanted: &str) -> u64 {
    verdicts
        .values()
        .filter(|verdict| *verdict == wanted)
        .count() as u64
}

fn compare(case: &Case) -> Outcome {
    let configuration = case.work().join("pjdfstest.toml");
    fs::write(&configuration, CONFIGURATION)?;
    let reference = case.loop_fs("ext4", LoopFs::Ext4, 512 << 20)?;
    let other = case.loop_fs("other", LoopFs::Ext4, 64 << 20)?;
    let fs = case.fs()?;
    let (there, here) = std::thread::scope(|scope| {
        let there = scope.spawn(|| run(&configuration, reference.path(), other.path()));
        let here = run(&configuration, fs.path(), other.path());
        (there.join().expect("the reference run panicked"), here)
    });
    let ((there, reference_output), (here, output)) = (there?, here?);
    if count(&there, "ok") < 380 {
        println!("{reference_output}");
        return Err(Failure::new(
            "fewer tests than expected pass on ext4; is the set-up complete?",
        ));
    }

    let declined = |name: &str| {
        let skipped = here.get(name).is_some_and(|verdict| verdict == "skipped");
        skipped && NOT_ON_FUSE.iter().any(|(known, _)| *known == name)
    };
    let broken: Vec<&String> = there
        .iter()
        .filter(|(_, verdict)| *verdict == "ok")
        .map(|(name, _)| name)
        .filter(|name| here.get(*name).is_none_or(|verdict| verdict != "ok") && !declined(name))
        .collect();
    for (name, why) in NOT_ON_FUSE.iter().filter(|(name, _)| declined(name)) {
        note(format!("not run here: {name}: {why}"));
    }
    for (name, verdicts) in [("pjdfstest on ext4", &there), ("pjdfstest here", &here)] {
        let (passed, failed) = (count(verdicts, "ok"), count(verdicts, "FAILED"));
        note(format!(
            "{name}: {} executed, {passed} passed, {} not run",
            passed + failed,
            count(verdicts, "skipped")
        ));
        tally(name, passed + failed, passed, count(verdicts, "skipped"));
    }
    if !broken.is_empty() {
        for line in output.lines().filter(|line| !line.ends_with(" ok")) {
            println!("{line}");
        }
    }
    ensure!(
        broken.is_empty(),
        "{} tests pass on ext4 but not here: {broken:#?}",
        broken.len()
    );
    fs.finish()
}
