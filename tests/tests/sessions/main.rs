//! Sessions of a store one after the other: the remains of each, and the report of the next about
//! one that died.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use shale_tests::{
    Case, Failure, Mount, Need, Outcome, Suite, ensure, ensure_eq, read_tree, same_trees, shale,
};

/// Files of the catalog at most: one, and the next while it is being made.
const CATALOG: usize = 2;

fn main() -> ExitCode {
    Suite::new("sessions")
        .need(Need::Shale)
        .limit(Duration::from_secs(180))
        .test("many_mounts_leave_few_files_behind", |case| {
            cycles(case, End::Unmount)
        })
        .test("many_deaths_leave_few_files_behind", |case| {
            cycles(case, End::Death)
        })
        .test("a_mount_reports_a_session_that_died", told)
        .test("a_long_list_of_files_is_cut", many)
        .test("a_dead_mount_goes_while_its_store_is_in_use", cleared)
        .run()
}

/// The lines that a mount has logged since, all of them warnings or worse.
fn logged(mount: &Mount, since: usize) -> Vec<String> {
    let text = mount.log_text();
    text[since..].lines().map(str::to_owned).collect()
}

fn told(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &[])?;
    fs::create_dir(mount.path().join("run 1"))?;
    fs::write(mount.path().join("run 1/old"), b"old")?;
    mount.remount()?;
    ensure!(
        mount.log_text().is_empty(),
        "a mount after an end in order says\n{}",
        mount.log_text()
    );
    let mut file = File::create(mount.path().join("run 1/synced"))?;
    file.write_all(&[1; 300_000])?;
    file.sync_all()?;
    let mut file = File::create(mount.path().join("run 1/being written\n"))?;
    file.write_all(&[2; 300_000])?;
    let pid = mount.pid()?;
    mount.kill9()?;
    mount.detach();
    drop(file);
    mount.start()?;
    let lines = logged(&mount, 0);
    let [line] = &lines[..] else {
        return Err(Failure::new(format!("not one line: {lines:#?}")));
    };
    for part in [
        " WARN ",
        "did not shut down cleanly",
        &format!("process {pid} (mounted on {})", mount.path().display()),
        "/run 1/synced",
        "/run 1/being written",
    ] {
        ensure!(line.contains(part), "{part:?} is not in: {line}");
    }
    ensure!(
        !line.contains("/old"),
        "a file of an earlier session: {line}"
    );
    let since = mount.log_text().len();
    // It is reported once: this session shuts down cleanly.
    mount.remount()?;
    let lines = logged(&mount, since);
    ensure!(lines.is_empty(), "again: {lines:#?}");
    // One that died without having changed anything.
    mount.kill9()?;
    mount.detach();
    mount.start()?;
    let lines = logged(&mount, since);
    ensure!(
        lines.len() == 1 && lines[0].contains("did not shut down cleanly"),
        "{lines:#?}"
    );
    ensure!(
        !lines[0].contains("/run 1"),
        "nothing was written: {lines:#?}"
    );
    // Read-only mounts report it as well, and change nothing about that.
    mount.kill9()?;
    mount.detach();
    for _ in 0..2 {
        let since = mount.log_text().len();
        let mut reader = Mount::new(mount.store().to_owned(), mount.path().to_owned(), &["--ro"])?;
        let lines = logged(&reader, since);
        ensure!(
            lines.len() == 1 && lines[0].contains("did not shut down cleanly"),
            "read-only: {lines:#?}"
        );
        reader.unmount()?;
    }
    mount.start()?;
    mount.unmount()
}

/// The store is mounted elsewhere by the time the dead mount is cleared.
fn cleared(case: &Case) -> Outcome {
    let mut dead = case.mount("dead", &[])?;
    dead.kill9()?;
    let mut other = Mount::new(dead.store().to_owned(), case.work().join("fs"), &[])?;
    shale()
        .arg("unmount")
        .arg(dead.path())
        .limit(Duration::from_secs(20))
        .ok()?;
    ensure!(!dead.is_mounted(), "the dead mount is still there");
    fs::write(other.path().join("file"), b"alive")?;
    other.unmount()
}

fn many(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &[])?;
    for number in 0..300 {
        fs::write(mount.path().join(format!("file-{number}")), b"x")?;
    }
    mount.kill9()?;
    mount.detach();
    mount.start()?;
    let lines = logged(&mount, 0);
    ensure_eq!(lines.len(), 1, "lines: {lines:#?}");
    ensure!(
        lines[0].contains(" more") && lines[0].len() < 2000,
        "the list is not cut: {}",
        lines[0]
    );
    mount.unmount()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Unmount,
    Death,
}

/// The remains of a session in the directory of packs: files of the catalog, and directories of
/// sessions without a pack.
fn left(store: &Path) -> Outcome<(usize, Vec<String>)> {
    let packs = store.join("packs");
    let mut empty = Vec::new();
    for entry in fs::read_dir(&packs)? {
        let path = entry?.path();
        if fs::read_dir(&path)?.next().is_none() {
            empty.push(path.display().to_string());
        }
    }
    Ok((fs::read_dir(packs.join("catalog"))?.count(), empty))
}

fn cycles(case: &Case, end: End) -> Outcome {
    let mut mount = case.mount("fs", &[])?;
    fs::write(mount.path().join("kept"), b"kept")?;
    for round in 0..13 {
        // Every third session writes nothing, and another third nothing that stays.
        let path = mount.path().join(format!("round-{round}"));
        if round % 3 > 0 {
            let mut file = File::create(&path)?;
            file.write_all(&[round; 100_000])?;
            file.sync_all()?;
            drop(file);
        }
        if round % 3 == 1 {
            fs::remove_file(&path)?;
        }
        match end {
            End::Unmount => mount.unmount()?,
            End::Death => {
                mount.kill9()?;
                mount.detach();
            }
        }
        let (files, empty) = left(mount.store())?;
        ensure!(
            files <= CATALOG,
            "{files} files of the catalog after {round} rounds"
        );
        if end == End::Unmount {
            ensure!(empty.is_empty(), "empty directories stay: {empty:?}");
        }
        mount.start()?;
    }
    let files = read_tree(mount.path())?;
    mount.unmount()?;
    let (_, empty) = left(mount.store())?;
    ensure!(empty.is_empty(), "empty directories stay: {empty:?}");
    mount.fsck_is_clean()?;
    // All that was merged is still there.
    fs::remove_dir_all(mount.store().join("index"))?;
    mount.fsck(&["--rebuild"])?.status_is(1)?;
    mount.start()?;
    same_trees(&read_tree(mount.path())?, &files)?;
    mount.unmount()
}
