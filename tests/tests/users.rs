//! Ordinary users: mounts of their own through fusermount3.

use std::fs;
use std::process::ExitCode;
use std::time::Duration;

use shale_tests::{Case, Cmd, Need, Outcome, Suite, binary, script};

fn main() -> ExitCode {
    Suite::new("users")
        .need(Need::Shale)
        .need(Need::Command("fusermount3"))
        .limit(Duration::from_secs(180))
        .test("an_ordinary_user_mounts_in_its_own_directory", own_mount)
        .run()
}

fn own_mount(case: &Case) -> Outcome {
    // The build directory may be closed to others.
    let program = case.work().join("shale");
    fs::copy(binary(), &program)?;
    Cmd::new(script("user_mount.sh"))
        .arg(&program)
        .arg(case.work())
        .ok()?;
    Ok(())
}
