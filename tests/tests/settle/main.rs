//! Settling and gc: files change their form on disk, never their contents.

mod command;
mod contents;
mod corpus;
mod damage;
mod gc;
mod small;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use shale_tests::{Need, Outcome, Suite, python};

fn main() -> ExitCode {
    Suite::new("settle")
        .need(Need::Shale)
        .need(Need::File(python()))
        .limit(Duration::from_secs(300))
        .test(
            "contents_survive_settling_under_readers_and_writers",
            contents::under_load,
        )
        .test(
            "a_settled_file_can_be_written_and_settles_again",
            contents::again,
        )
        .test("quiet_files_settle_by_themselves", contents::by_themselves)
        .test(
            "what_was_gained_is_counted_from_what_was_stored",
            command::gained,
        )
        .test("the_demo_shows_what_settling_gains", command::demo)
        .test("small_files_are_settled_together", small::together)
        .test(
            "an_interrupted_settle_says_what_continues",
            command::interrupted,
        )
        .test("what_was_asked_for_can_be_cancelled", command::cancelled)
        .test("a_kill_while_settling_leaves_old_or_new", contents::killed)
        .test(
            "settled_files_are_rebuilt_from_packs_alone",
            damage::rebuilt,
        )
        .test(
            "flipped_bytes_in_settled_packs_are_never_served",
            damage::flipped,
        )
        .test("deleting_half_gives_the_space_back", gc::space_back)
        .test("what_cannot_be_read_cannot_be_settled", damage::unreadable)
        .test(
            "a_damaged_pack_is_not_rewritten_but_others_are",
            gc::undeletable,
        )
        .run()
}

/// The packs of a store, in the order in which they were made.
fn packs(store: &Path) -> Outcome<Vec<PathBuf>> {
    let mut packs = Vec::new();
    for session in fs::read_dir(store.join("packs"))? {
        let session = session?.path();
        if !session.ends_with("catalog") {
            for pack in fs::read_dir(session)? {
                packs.push(pack?.path());
            }
        }
    }
    packs.sort();
    Ok(packs)
}

fn write_synced(path: &Path, bytes: &[u8]) -> Outcome {
    let file = File::create(path)?;
    file.write_all_at(bytes, 0)?;
    Ok(file.sync_all()?)
}
