//! The reports of a mount: `shale stat`, attributes, and metrics.

mod documented;
mod metrics;
mod odd;
mod places;
mod totals;
mod variables;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::Value;
use shale_tests::{
    Case, Cmd, Context, Mount, Need, Outcome, Rng, Suite, ensure, ensure_eq, python, script, shale,
};

fn main() -> ExitCode {
    Suite::new("reports")
        .need(Need::Shale)
        .need(Need::File(python()))
        .limit(Duration::from_secs(180))
        .test("variables_add_up_to_their_file", variables::variables)
        .test("thousands_of_variables_come_in_pages", variables::pages)
        .test("files_without_variables_say_so", variables::no_variables)
        .test("a_listing_is_sorted_and_drawn", listing)
        .test("odd_things_are_shown_for_what_they_are", odd::odd_things)
        .test("directories_say_what_is_on_its_way", odd::on_its_way)
        .test("what_was_just_copied_is_counted", odd::just_copied)
        .test("ratios_are_of_what_is_stored", odd::while_writing)
        .test("a_total_is_not_less_than_its_parts", odd::growing)
        .test("a_listing_asks_once_for_each_name", odd::cheap)
        .test("without_a_path_it_is_the_current_directory", places::here)
        .test("overlapping_paths_count_once", places::overlapping)
        .test("a_store_is_distinguished_from_a_mount", places::stores)
        .test("lines_fit_into_a_terminal", places::width)
        .test("json_is_as_documented", documented::fields)
        .test("what_is_dense_is_not_called_incompressible", dense)
        .test(
            "totals_of_directories_are_exact_after_a_kill",
            totals::totals,
        )
        .test("metrics_move_with_the_work", metrics::metrics)
        .test(
            "a_daemon_asks_nothing_of_its_own_mount",
            metrics::nothing_asked,
        )
        .test("metrics_stay_on_this_machine", metrics::loopback)
        .test(
            "metrics_on_a_port_are_for_permitted_users",
            metrics::authorised,
        )
        .test(
            "a_socket_is_private_and_leaves_with_the_mount",
            metrics::socket,
        )
        .test("hostile_scrapers_do_no_harm", metrics::hostile)
        .test("live_figures_are_for_the_operator", metrics::operator)
        .run()
}

fn report(path: &Path, what: &str) -> Outcome<String> {
    let mut value = vec![0; 64 << 10];
    let len = rustix::fs::getxattr(path, format!("user.shale.stat.{what}"), &mut value[..])?;
    Ok(String::from_utf8(value[..len].to_vec())?)
}

fn json(command: Cmd) -> Outcome<Value> {
    Ok(serde_json::from_str(&command.ok()?)?)
}

fn number(value: &Value) -> Outcome<u64> {
    value.as_u64().doing(format!("{value} is not a number"))
}

fn sum(list: &Value, field: &str) -> Outcome<u64> {
    let list = list.as_array().doing("no list in the report")?;
    list.iter().map(|entry| number(&entry[field])).sum()
}

fn corpus(case: &Case, mount: &Mount) -> Outcome<Vec<String>> {
    let host = case.dir("host")?;
    Cmd::new(python())
        .arg(script("settle_corpus.py"))
        .arg(&host)
        .ok()?;
    let mut names = Vec::new();
    for entry in fs::read_dir(&host)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        fs::copy(host.join(&name), mount.path().join(&name))?;
        File::open(mount.path().join(&name))?.sync_all()?;
        names.push(name);
    }
    names.sort();
    Ok(names)
}

fn listing(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &["-o", "settle=off"])?;
    let mut rng = Rng::new(3);
    for (name, len) in [("a", 300_000), ("b", 100_000), ("c", 200_000)] {
        let file = File::create(mount.path().join(name))?;
        file.write_all_at(&rng.bytes(len), 0)?;
        file.sync_all()?;
    }
    let order = |arguments: &[&str]| -> Outcome<String> {
        let text = shale()
            .arg("stat")
            .args(arguments)
            .arg(mount.path())
            .run()?
            .success()?
            .text();
        Ok(text
            .lines()
            .skip(1)
            .filter_map(|line| line.chars().next())
            .take(3)
            .collect())
    };
    ensure_eq!(order(&[])?, "abc");
    ensure_eq!(order(&["--reverse"])?, "cba");
    ensure_eq!(order(&["--sort", "stored"])?, "bca");
    ensure_eq!(order(&["--sort", "raw", "--reverse"])?, "acb");
    let drawn = |flag: &[&str]| -> Outcome<bool> {
        let text = shale().arg("stat").args(flag).arg(mount.path()).ok()?;
        // A sixth, a third and a half of the whole.
        Ok(["█▋", "███▎", "█████", "██████████"]
            .iter()
            .all(|bar| text.contains(bar)))
    };
    ensure!(drawn(&["--bars"])?, "no bars");
    ensure!(!drawn(&[])?, "bars though the output is not a terminal");
    shale()
        .args(["stat", "--sort", "color"])
        .arg(mount.path())
        .run()?
        .status_is(64)?;
    mount.unmount()
}

/// Two files that settling leaves as they are: one does not compress at all.
fn dense(case: &Case) -> Outcome {
    let path = case.work().join("metrics.sock");
    let address = format!("unix:{}", path.display());
    let mut mount = case.mount("fs", &["--metrics", &address, "-o", "settle=off"])?;
    fs::write(mount.path().join("noise"), Rng::new(5).bytes(1 << 20))?;
    let mut half = Rng::new(6).bytes(1 << 20);
    half[..1 << 19].fill(b' ');
    fs::write(mount.path().join("half"), &half)?;
    Cmd::new("setfattr")
        .args(["-n", "user.shale.settle.codec", "-v", "lz4"])
        .arg(mount.path())
        .ok()?;
    shale().args(["settle", "--wait"]).arg(mount.path()).ok()?;
    for (name, state) in [("half", "compact"), ("noise", "incompressible")] {
        let path = mount.path().join(name);
        ensure_eq!(report(&path, "state")?, state, "{name}");
        let text = shale().arg("stat").arg(&path).ok()?;
        ensure!(text.contains(state), "{text}");
    }
    let counted = metrics::scrape(&path)?;
    for (result, count) in [("settled", 0.0), ("compact", 1.0), ("incompressible", 1.0)] {
        let name = format!("shale_settled_files_total{{result=\"{result}\"}}");
        ensure_eq!(counted.get(&name), Some(&count), "{name}");
    }
    let live: Value = serde_json::from_str(&report(mount.path(), "live")?)?;
    ensure_eq!(number(&live["settle"]["compact"])?, 1);
    ensure_eq!(number(&live["settle"]["incompressible"])?, 1);
    mount.unmount()
}
