//! Requests that `shale` cannot fulfil: one line that says what is wrong, a non-zero exit status,
//! and nothing changed.

mod commands;
mod mountpoint;
mod store;
mod table;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use shale_tests::{
    Case, Finished, Need, Outcome, Suite, ensure, ensure_eq, read_tree, same_trees, shale,
};

fn main() -> ExitCode {
    Suite::new("bad_input")
        .need(Need::Shale)
        .limit(Duration::from_secs(120))
        .test("store_that_is_a_file", store::store_that_is_a_file)
        .test(
            "store_that_holds_something_else",
            store::store_that_holds_something_else,
        )
        .test(
            "store_of_an_unknown_format_version",
            store::store_of_an_unknown_version,
        )
        .test(
            "store_with_a_damaged_superblock",
            store::store_with_a_damaged_superblock,
        )
        .test(
            "store_that_is_not_writable",
            store::store_that_is_not_writable,
        )
        .test(
            "store_on_a_read_only_file_system",
            store::store_on_a_read_only_file_system,
        )
        .test(
            "store_whose_parent_does_not_exist",
            store::store_whose_parent_does_not_exist,
        )
        .test(
            "store_that_is_mounted_already",
            store::store_that_is_mounted_already,
        )
        .test(
            "mountpoint_that_does_not_exist",
            mountpoint::mountpoint_that_does_not_exist,
        )
        .test(
            "mountpoint_that_is_a_file",
            mountpoint::mountpoint_that_is_a_file,
        )
        .test(
            "mountpoint_that_is_not_empty",
            mountpoint::mountpoint_that_is_not_empty,
        )
        .test(
            "mountpoint_that_is_busy",
            mountpoint::mountpoint_that_is_busy,
        )
        .test(
            "mountpoint_inside_the_store_and_the_reverse",
            mountpoint::mountpoint_inside_the_store,
        )
        .test(
            "sizes_and_options_out_of_range",
            commands::sizes_and_options_out_of_range,
        )
        .test(
            "arguments_that_are_missing_or_unknown",
            commands::arguments_that_are_missing,
        )
        .test(
            "unmount_of_what_is_not_ours",
            commands::unmount_of_what_is_not_ours,
        )
        .test(
            "unmount_clears_the_mount_of_a_dead_daemon",
            commands::unmount_clears_a_dead_mount,
        )
        .test(
            "a_dead_daemon_does_not_lock_its_store",
            store::dead_daemon_does_not_lock,
        )
        .test(
            "fsck_of_something_that_is_not_a_store",
            commands::fsck_of_something_that_is_not_a_store,
        )
        .test("fsck_of_a_mounted_store", commands::fsck_of_a_mounted_store)
        .test(
            "stat_of_what_is_not_on_a_mount",
            commands::stat_of_what_is_not_on_a_mount,
        )
        .test(
            "changes_in_a_mount_that_is_read_only",
            commands::changes_in_a_read_only_mount,
        )
        .test(
            "every_command_refuses_every_bad_path_and_number",
            table::every_command_refuses_everything,
        )
        .test(
            "every_command_explains_wrong_usage",
            table::every_command_explains_wrong_usage,
        )
        .run()
}

/// Fails unless the command failed with exactly one line on its standard error.
#[track_caller]
fn refused(finished: Finished) -> Outcome<String> {
    let described = finished.describe();
    ensure!(
        finished.status.code().is_some_and(|code| code != 0),
        "not refused: {described}"
    );
    ensure_eq!(
        finished.stderr.lines().count(),
        1,
        "lines on stderr of {described}"
    );
    ensure!(
        finished.stdout.is_empty(),
        "a refusal wrote to stdout: {described}"
    );
    ensure!(
        !finished.stderr.contains("panicked"),
        "a panic is not a message: {described}"
    );
    ensure!(
        finished.stderr.trim().len() > 15,
        "the message says nothing: {described}"
    );
    Ok(finished.stderr)
}

/// Fails unless a mount is refused and everything below `work` is unchanged.
#[track_caller]
fn mount_refused(
    case: &Case,
    options: &[&str],
    store: &Path,
    mountpoint: &Path,
) -> Outcome<String> {
    let before = snapshot(case)?;
    let message = refused(
        shale()
            .arg("mount")
            .args(options)
            .arg(store)
            .arg(mountpoint)
            .run()?,
    )?;
    same_trees(&snapshot(case)?, &before)?;
    Ok(message)
}

/// Everything in the test's directory, without the files of the runner.
fn snapshot(
    case: &Case,
) -> Outcome<std::collections::BTreeMap<std::path::PathBuf, shale_tests::Entry>> {
    let mut tree = read_tree(case.work())?;
    tree.remove(Path::new("output"));
    tree.remove(Path::new(""));
    Ok(tree)
}

#[track_caller]
fn names(message: &str, path: &Path) -> Outcome {
    ensure!(
        message.contains(&*path.to_string_lossy()),
        "the message does not name {}: {message}",
        path.display()
    );
    Ok(())
}
