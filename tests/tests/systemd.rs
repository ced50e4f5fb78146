//! The unit: systemd accepts it, and its commands, executed as written, mount, recover and
//! unmount.

use std::fs;
use std::process::ExitCode;
use std::time::Duration;

use shale_tests::{
    Case, Cmd, Context, Finished, Mount, Need, Outcome, Suite, binary, ensure, ensure_eq, root,
};

fn main() -> ExitCode {
    Suite::new("systemd")
        .need(Need::Shale)
        .need(Need::Command("systemd-analyze"))
        .limit(Duration::from_secs(60))
        .test("systemd_accepts_the_unit", accepted)
        .test("commands_of_the_unit_mount_recover_and_unmount", commands)
        .run()
}

/// The unit with the command under test in the place of the installed one.
fn unit() -> Outcome<String> {
    let text = fs::read_to_string(root().join("systemd/shale@.service"))?;
    Ok(text.replace("/usr/bin/shale", &binary().display().to_string()))
}

fn accepted(case: &Case) -> Outcome {
    let path = case.work().join("shale@test.service");
    fs::write(&path, unit()?)?;
    let finished = Cmd::new("systemd-analyze").arg("verify").arg(&path).run()?;
    ensure!(finished.status.success(), "{}", finished.describe());
    Ok(())
}

/// Executes the line `key` of the unit; a command after `-` may fail.
fn execute(key: &str, variables: &[(&str, String)]) -> Outcome<Finished> {
    let unit = unit()?;
    let line = unit
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
        .doing(format!("looking for {key}"))?;
    let mut words = Vec::new();
    for word in line.trim_start_matches('-').split(' ') {
        let found = variables.iter().find_map(|(name, value)| {
            if word == format!("${{{name}}}") {
                Some(vec![value.clone()])
            } else if word == format!("${name}") {
                Some(value.split_whitespace().map(str::to_owned).collect())
            } else {
                None
            }
        });
        words.extend(found.unwrap_or_else(|| vec![word.to_owned()]));
    }
    ensure!(
        words.iter().all(|word| !word.contains('$')),
        "a variable is not set: {words:?}"
    );
    Cmd::new(&words[0]).args(&words[1..]).run()
}

fn commands(case: &Case) -> Outcome {
    // Made and unmounted by the harness, so that it sweeps up whatever happens.
    let mut mount: Mount = case.mount("fs", &[])?;
    mount.unmount()?;
    let text = |path: &std::path::Path| path.display().to_string();
    let variables = [
        ("STORE", text(mount.store())),
        ("MOUNTPOINT", text(mount.path())),
        ("OPTIONS", "-o memory=64M,noatime".to_owned()),
    ];
    execute("ExecStart", &variables)?.status_is(0)?;
    ensure!(mount.is_mounted(), "nothing is mounted");
    let file = mount.path().join("file");
    fs::write(&file, b"contents")?;
    fs::File::open(&file)?.sync_all()?;

    let daemon = mount.holder()?;
    Cmd::new("kill").args(["-9", &daemon.to_string()]).ok()?;
    execute("ExecStopPost", &variables)?.status_is(0)?;
    ensure!(!mount.is_mounted(), "the dead mount was not cleared");

    execute("ExecStart", &variables)?.status_is(0)?;
    ensure_eq!(fs::read(&file)?, b"contents", "after the restart");
    execute("ExecStop", &variables)?.status_is(0)?;
    ensure!(!mount.is_mounted(), "still mounted");
    execute("ExecStopPost", &variables)?;
    mount.fsck_is_clean()
}
