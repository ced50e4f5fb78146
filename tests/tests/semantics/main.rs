//! docs/semantics.md, executed: a test for each row of its tables, and one that fails when a row
//! has no test. The claims of docs/security.md have tests as well.

mod claims;
mod differences;
mod durability;
mod quota;

use std::collections::BTreeSet;
use std::fs;
use std::process::ExitCode;
use std::time::Duration;

use shale_tests::{Case, Need, Outcome, Suite, ensure_eq, root};

type Body = fn(&Case) -> Outcome;

/// The first cell of each row, the name of its test, and the test.
const ROWS: &[(&str, &str, Body)] = &[
    (
        "`write` returns",
        "write_is_visible_at_once",
        durability::write,
    ),
    (
        "`close` returns",
        "closed_files_are_durable_soon",
        durability::close,
    ),
    (
        "`write` with `O_SYNC`, `O_DSYNC` or `RWF_DSYNC` returns, also with `-o direct_io`",
        "synchronous_writes_are_durable",
        durability::synchronous_write,
    ),
    (
        "`write`, `truncate`, `chmod`, `setxattr` ... return in a mount with `-o sync`",
        "everything_is_durable_at_once_where_the_mount_says_so",
        durability::sync_mount,
    ),
    (
        "`create`, `link`, `rename`, `unlink`, `mkdir` ... return in a mount with `-o dirsync` or \
         `-o sync`",
        "names_are_durable_at_once_where_the_mount_says_so",
        durability::dirsync_mount,
    ),
    (
        "`close` of a file that was open for writing returns 0, policy `durability=sync`",
        "closed_files_are_durable_where_the_policy_says_so",
        durability::close_under_sync,
    ),
    (
        "`write` with `O_DIRECT` or in a mount with `-o direct_io` returns; `truncate` returns: \
         policy `durability=sync`",
        "direct_writes_are_durable_where_the_policy_says_so",
        durability::direct_write_under_sync,
    ),
    (
        "`fsync` or `fdatasync` returns 0",
        "synced_files_are_durable",
        durability::fsync,
    ),
    (
        "`fsync` of a directory returns 0",
        "a_synced_directory_makes_all_names_durable",
        durability::fsync_directory,
    ),
    (
        "`rename`, `link`, `unlink`, `mkdir`, `chmod`, `setxattr` ... return",
        "names_and_attributes_follow_any_sync",
        durability::names,
    ),
    (
        "`shale unmount` returns 0",
        "everything_is_durable_after_unmount",
        durability::unmount,
    ),
    (
        "the daemon is killed",
        "a_killed_daemon_keeps_names_and_attributes",
        durability::killed,
    ),
    ("`O_TMPFILE`", "tmpfile_is_refused", differences::tmpfile),
    (
        "`syncfs(2)`, `sync(1)`",
        "syncfs_hands_over_and_durability_follows",
        durability::syncfs,
    ),
    (
        "birth time in `statx(2)`",
        "no_birth_time",
        differences::birth_time,
    ),
    (
        "`fallocate`",
        "fallocate_extends_and_checks_space",
        differences::fallocate,
    ),
    (
        "overwriting on a full device",
        "overwriting_needs_room_for_the_new_bytes",
        differences::overwriting,
    ),
    (
        "access time",
        "reading_does_not_change_times",
        differences::access_time,
    ),
    ("`RENAME_WHITEOUT`", "no_whiteouts", differences::whiteout),
    (
        "size of directories",
        "directories_have_no_size",
        differences::directory_size,
    ),
    (
        "`FALLOC_FL_COLLAPSE_RANGE`, `INSERT_RANGE`",
        "ranges_are_not_moved",
        differences::move_ranges,
    ),
    (
        "`FICLONE`, reflinks",
        "no_clones_but_copies",
        differences::clone,
    ),
    (
        "`st_blocks`",
        "blocks_are_what_is_stored",
        differences::blocks,
    ),
    (
        "`st_blksize`",
        "block_size_is_the_chunk_size",
        differences::block_size,
    ),
    (
        "free inodes in `statfs`",
        "inodes_are_estimated",
        differences::inodes,
    ),
    (
        "locks (`flock`, `fcntl`)",
        "locks_exclude",
        differences::locks,
    ),
    (
        "file handles (`open_by_handle_at`, NFS export)",
        "handles_survive_renames",
        differences::handles,
    ),
    (
        "quotas of users inside the mount",
        "a_quota_of_the_device_is_edquot",
        quota::quota,
    ),
    (
        "a file with several names",
        "several_names_count_once",
        differences::several_names,
    ),
];

fn main() -> ExitCode {
    let mut suite = Suite::new("semantics")
        .need(Need::Shale)
        .need(Need::Command("btrfs"))
        .limit(Duration::from_secs(120))
        .test("every_row_of_the_document_has_its_test", every_row)
        .test("every_claim_of_security_has_its_tests", claims::every_claim);
    for &(_, name, body) in ROWS {
        suite = suite.test(name, body);
    }
    suite.run()
}

fn every_row(_: &Case) -> Outcome {
    let document = fs::read_to_string(root().join("docs/semantics.md"))?;
    let lines: Vec<&str> = document.lines().collect();
    let mut found = BTreeSet::new();
    for (number, line) in lines.iter().enumerate() {
        // Not the heads of tables and the rules below them.
        let is_head = lines
            .get(number + 1)
            .is_some_and(|next| next.starts_with("|---"));
        if line.starts_with("| ") && !is_head {
            found.extend(line.split(" | ").next().map(|cell| cell[2..].to_owned()));
        }
    }
    let tested: BTreeSet<String> = ROWS.iter().map(|row| row.0.to_owned()).collect();
    ensure_eq!(
        found,
        tested,
        "rows of the document (found) and rows with a test"
    );
    Ok(())
}
