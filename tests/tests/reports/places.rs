//! How `shale stat` treats the paths that it is given, and the width of a terminal.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::Value;
use shale_tests::shale;
use shale_tests::{
    Case, Cmd, Mount, Outcome, Rng, binary, ensure, ensure_eq, read_tree, same_trees,
};

use super::{json, number};

/// A few files in two directories, all of them stored.
fn filled(case: &Case) -> Outcome<Mount> {
    let mount = case.mount("fs", &["-o", "settle=off"])?;
    let mut rng = Rng::new(1);
    fs::create_dir_all(mount.path().join("run/inner"))?;
    for name in ["run/a", "run/inner/b", "top"] {
        let path = mount.path().join(name);
        let mut bytes = rng.bytes(200_000);
        bytes[..100_000].fill(0);
        fs::write(&path, bytes)?;
        fs::File::open(&path)?.sync_all()?;
    }
    symlink("top", mount.path().join("link"))?;
    Ok(mount)
}

/// Without a path it reports the current directory.
pub(crate) fn here(case: &Case) -> Outcome {
    let mut mount = filled(case)?;
    let run = mount.path().join("run");
    let here = json(shale().args(["stat", "--json"]).cwd(&run))?;
    let named = json(shale().args(["stat", "--json", "."]).cwd(&run))?;
    ensure_eq!(here, named);
    ensure_eq!(number(&here["total"]["raw"])?, 400_000);
    let elsewhere = shale().arg("stat").cwd(case.work()).run()?.status_is(66)?;
    ensure!(
        elsewhere.stderr.contains("not in a ShaleFS mount"),
        "{}",
        elsewhere.stderr
    );
    mount.unmount()
}

/// What is named twice, or is in something that is named, counts once in the total.
pub(crate) fn overlapping(case: &Case) -> Outcome {
    let mut mount = filled(case)?;
    fs::hard_link(mount.path().join("top"), mount.path().join("other"))?;
    let total = |paths: &[&str]| -> Outcome<(u64, u64)> {
        let command = shale().args(["stat", "--json", "--summary"]).args(paths);
        let value = json(command.cwd(mount.path()))?;
        ensure_eq!(
            value["entries"].as_array().map(Vec::len),
            Some(paths.len()),
            "{value:#}"
        );
        let total = &value["total"];
        Ok((number(&total["raw"])?, number(&total["files"])?))
    };
    for (paths, files) in [
        (&["run", "top"][..], 3),
        (&["run", "run"], 2),
        (&["run", "./run/", "run/inner"], 2),
        (&["run/inner/b", "run"], 2),
        (&["top", "other", "link"], 1),
        (&["run/a", "run/inner"], 2),
    ] {
        ensure_eq!(total(paths)?, (files * 200_000, files), "{paths:?}");
    }
    // The link is a file to the directory that it is in.
    ensure_eq!(total(&[".", "top", "run/a"])?, (600_000, 4));
    mount.unmount()
}

/// A store is distinguished from a mount, and read where it is not mounted.
pub(crate) fn stores(case: &Case) -> Outcome {
    let mut mount = filled(case)?;
    let store = mount.store().to_owned();
    let mounted = json(shale().args(["stat", "--json"]).arg(mount.path()))?;
    for command in [
        &["stat"][..],
        &["settle"],
        &["gc"],
        &["top", "--once"],
        &["policy", "show"],
    ] {
        let refused = shale().args(command).arg(&store).run()?.status_is(66)?;
        let place = mount.path().to_string_lossy();
        ensure!(
            refused.stderr.contains("is a store") && refused.stderr.contains(&*place),
            "{command:?}: {}",
            refused.stderr
        );
    }
    mount.unmount()?;
    for command in [
        &["settle"][..],
        &["gc"],
        &["top", "--once"],
        &["policy", "show"],
    ] {
        let refused = shale().args(command).arg(&store).run()?.status_is(66)?;
        ensure!(
            refused.stderr.contains("is not mounted") && refused.stderr.contains("shale mount"),
            "{command:?}: {}",
            refused.stderr
        );
    }
    let before = read_tree(&store)?;
    let unmounted = json(shale().args(["stat", "--json"]).arg(&store))?;
    same_trees(&read_tree(&store)?, &before)?;
    let figures = |value: &Value| -> Outcome<Vec<(String, u64, u64, String)>> {
        let entry = &value["entries"][0];
        let children = entry["children"].as_array().into_iter().flatten();
        children
            .map(|child| {
                let text = |name: &str| child[name].as_str().unwrap_or_default().to_owned();
                let number = |name: &str| child[name].as_u64().unwrap_or_default();
                Ok((text("path"), number("raw"), number("stored"), text("kind")))
            })
            .collect()
    };
    ensure_eq!(figures(&unmounted)?, figures(&mounted)?);
    ensure_eq!(unmounted["total"], mounted["total"]);
    let text = shale().arg("stat").arg(&store).ok()?;
    ensure!(text.contains("run/") && text.contains("symlink"), "{text}");
    let summary = shale().args(["stat", "--summary"]).arg(&store).ok()?;
    ensure_eq!(summary.lines().count(), 2, "{summary}");
    shale()
        .args(["stat", "--vars"])
        .arg(&store)
        .run()?
        .status_is(66)?;
    Ok(())
}

/// Every line fits into a terminal; in a file or a pipe, names are whole.
pub(crate) fn width(case: &Case) -> Outcome {
    let mut mount = filled(case)?;
    let long = "a_rather_long_name_of_a_file_with_the_history_of_a_run_".repeat(2);
    fs::write(mount.path().join(&long), b"x")?;
    let deep = mount.path().join("run").join(&long);
    fs::create_dir(&deep)?;
    let lines = |columns: u32, paths: &[&Path]| -> Outcome<Vec<String>> {
        let paths: Vec<String> = paths
            .iter()
            .map(|path| path.display().to_string())
            .collect();
        let command = format!("{} stat {}", binary().display(), paths.join(" "));
        let text = Cmd::new("script")
            .args([
                "-qec",
                &format!("stty cols {columns}; {command}"),
                "/dev/null",
            ])
            .ok()?;
        Ok(text
            .lines()
            .map(|line| line.trim_end().to_owned())
            .collect())
    };
    for columns in [80, 100, 120] {
        let shown = lines(columns, &[mount.path(), &deep])?;
        ensure!(shown.len() >= 8, "{shown:#?}");
        for line in &shown {
            ensure!(
                line.chars().count() <= columns as usize,
                "{columns}: {line}"
            );
        }
        ensure!(
            shown.iter().any(|line| line.contains("of_a_run_ ")),
            "{shown:#?}"
        );
    }
    let plain = shale().arg("stat").args([mount.path(), &deep]).ok()?;
    ensure!(plain.contains(&long), "{plain}");
    mount.unmount()
}
