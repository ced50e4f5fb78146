//! Sessions of a store one after the other: what each leaves behind, and what the next says of one
//! that died.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use shale_tests::{Case, Need, Outcome, Suite, ensure, read_tree, same_trees};

/// Files of the catalogue at most: one, and the next while it is being made.
const CATALOGUE: usize = 2;

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
        .run()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Unmount,
    Death,
}

/// What a session leaves in the directory of packs: files of the catalogue, and directories of
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
            files <= CATALOGUE,
            "{files} files of the catalogue after {round} rounds"
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
