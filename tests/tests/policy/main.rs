//! Policies: values set on directories and files, and their effects.

mod copies;
mod effects;
mod places;
mod refusals;
mod rewriting;

use std::fs::{self, File};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use shale_tests::{Cmd, Need, Outcome, Rng, Suite};

fn main() -> ExitCode {
    Suite::new("policy")
        .need(Need::Shale)
        .need(Need::Command("setfattr"))
        .need(Need::Command("getfattr"))
        .need(Need::Command("rsync"))
        .need(Need::Command("tar"))
        .limit(Duration::from_secs(180))
        .test("each_codec_is_what_the_frames_say", effects::codecs)
        .test("more_effort_makes_smaller_files", effects::effort)
        .test(
            "new_files_get_the_chunk_size_and_old_ones_keep_theirs",
            effects::chunk,
        )
        .test("files_settle_when_their_directory_says", effects::settle)
        .test("files_settle_with_their_own_codec", effects::settle_codec)
        .test(
            "what_was_not_worth_settling_is_tried_again",
            effects::hard_again,
        )
        .test(
            "what_was_closed_survives_kill_9_where_asked",
            effects::durability,
        )
        .test(
            "the_nearest_value_holds_and_root_has_the_last_word",
            places::precedence,
        )
        .test("an_ordinary_user_cannot_beat_root", places::ordinary_user)
        .test("policies_follow_the_place_of_a_file", places::moves)
        .test(
            "a_file_with_several_names_belongs_where_it_was_made",
            places::links,
        )
        .test("policies_survive_remount_and_kill_9", places::survival)
        .test(
            "bad_names_and_values_are_refused_and_change_nothing",
            refusals::attributes,
        )
        .test("the_command_says_what_is_wrong", refusals::command)
        .test(
            "the_command_shows_sets_unsets_and_explains",
            refusals::command_works,
        )
        .test("copies_keep_what_was_set_and_nothing_else", copies::tools)
        .test(
            "rewriting_applies_the_policy_to_what_is_there",
            rewriting::applies,
        )
        .test(
            "rewriting_leaves_out_what_is_open_for_writing",
            rewriting::busy,
        )
        .test(
            "rewriting_names_what_is_opened_for_writing_meanwhile",
            rewriting::opened_meanwhile,
        )
        .test(
            "stat_shows_the_new_chunk_size_right_after_rewriting",
            rewriting::seen_at_once,
        )
        .test(
            "rewriting_disturbs_no_reader_and_survives_kill_9",
            rewriting::killed,
        )
        .run()
}

/// Sets an attribute with the usual tool.
fn set(path: &Path, name: &str, value: &str) -> Outcome {
    Cmd::new("setfattr")
        .args(["-n", name, "-v", value])
        .arg(path)
        .ok()?;
    Ok(())
}

/// Removes an attribute.
fn unset(path: &Path, name: &str) -> Outcome {
    Cmd::new("setfattr").args(["-x", name]).arg(path).ok()?;
    Ok(())
}

/// Reads an attribute with the usual tool.
fn get(path: &Path, name: &str) -> Outcome<String> {
    Cmd::new("getfattr")
        .args(["--only-values", "--absolute-names", "-n", name])
        .arg(path)
        .ok()
}

/// Names and values of all attributes that are listed.
fn listed(path: &Path) -> Outcome<Vec<String>> {
    let text = Cmd::new("getfattr")
        .args(["--absolute-names", "-d", "-m", "-"])
        .arg(path)
        .ok()?;
    let mut lines: Vec<String> = text
        .lines()
        .filter(|line| line.contains('='))
        .map(str::to_owned)
        .collect();
    lines.sort();
    Ok(lines)
}

/// The line of `user.shale.effective` for a policy: value and source.
fn effective(path: &Path, policy: &str) -> Outcome<(String, String)> {
    let text = get(path, "user.shale.effective")?;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix(&format!("{policy}=")) {
            let (value, source) = rest.split_once("  ").unwrap_or((rest, ""));
            return Ok((value.to_owned(), source.to_owned()));
        }
    }
    Err(shale_tests::Failure::new(format!(
        "{policy} is not among what holds for {}: {text}",
        path.display()
    )))
}

/// Smooth floats with some noise in their last bits, every stretch of a thousand twice: there is
/// something in it for a codec that looks for repeats, more for one by columns, most for one that
/// does both.
fn field(floats: usize) -> Vec<u8> {
    let mut rng = Rng::new(11);
    let noise: Vec<u64> = (0..floats).map(|_| rng.below(1000)).collect();
    (0..floats)
        .flat_map(|i| {
            let i = i / 2000 * 2000 + i % 1000;
            let noise = noise[i] as f32 / 1e4;
            (280.0 + 10.0 * (i as f32 / 5000.0).sin() + noise).to_le_bytes()
        })
        .collect()
}

/// Whether frames are of a coder alone, besides raw ones for what did not shrink.
fn made_by(codecs: &str, coder: &str) -> bool {
    codecs.contains(coder)
        && codecs
            .split([' ', ':', '+'])
            .all(|word| ["settled", "columns", "verbatim", "raw", coder].contains(&word))
}

/// Writes a file and makes it durable.
fn write(path: &Path, bytes: &[u8]) -> Outcome {
    fs::write(path, bytes)?;
    File::open(path)?.sync_all()?;
    Ok(())
}
