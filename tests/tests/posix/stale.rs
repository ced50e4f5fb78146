//! Asynchronous direct writes beside buffered readers.

use shale_tests::{Case, Cmd, Outcome, ensure, note, script};

const ROUNDS: &str = "200";

/// A page that a reader had in the cache must not outlive the direct write that replaced it: the
/// next small write would put the old page over the new data.
pub(crate) fn pages(case: &Case) -> Outcome {
    let fs = case.fs()?;
    let program = case.work().join("stale_pages");
    Cmd::new("cc")
        .args(["-O2", "-pthread", "-o"])
        .arg(&program)
        .arg(script("stale_pages.c"))
        .ok()?;
    for interface in ["aio", "uring"] {
        let file = fs.at(interface);
        let finished = Cmd::new(&program)
            .arg(interface)
            .arg(file)
            .arg(ROUNDS)
            .run()?;
        if finished.status.code() == Some(77) {
            note(format!("this system has no {interface}"));
            continue;
        }
        ensure!(
            finished.status.success(),
            "{interface}: {}",
            finished.describe()
        );
    }
    fs.finish()
}
