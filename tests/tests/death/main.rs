//! The daemon dies at every named stage of its work, ends by SIGTERM, and follows or precedes
//! another one.
//!
//! A file counts once both it and its directory have been synced. Whatever ends the daemon, those
//! files must be there byte for byte afterwards, every change of names that had returned must
//! have happened, and the store must be clean.

use std::process::ExitCode;
use std::time::Duration;

use shale_tests::{Need, Suite, failpoints_binary};

mod churn;
mod sigterm;
mod stages;
mod succession;

fn main() -> ExitCode {
    Suite::new("death")
        .need(Need::Shale)
        .need(Need::File(failpoints_binary()))
        .limit(Duration::from_secs(600))
        .test("aborted_at_every_stage", stages::aborted_at_every_stage)
        .test(
            "the_shipped_command_has_no_failpoints",
            stages::the_shipped_command_has_none,
        )
        .test("sigterm_under_load_keeps_everything", sigterm::under_load)
        .test(
            "sigterm_waits_for_programs_that_use_files",
            sigterm::waits_for_open_files,
        )
        .test(
            "a_daemon_that_ends_leaves_the_next_mount_alone",
            succession::next_mount,
        )
        .test(
            "a_daemon_keeps_no_descriptor_of_the_mount_command",
            succession::descriptors,
        )
        .run()
}
