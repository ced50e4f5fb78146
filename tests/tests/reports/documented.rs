//! docs/json.md against the output of the commands.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use shale_tests::{
    Case, Cmd, Context, Failure, Mount, Outcome, Rng, ensure, ensure_eq, root, shale,
};

/// Types of a field, by its place: `entries[].path`.
type Fields = BTreeMap<String, BTreeSet<&'static str>>;

/// The contents of the page, by command; `every` of all, `error` of errors.
fn documented() -> Outcome<BTreeMap<String, Fields>> {
    let text = fs::read_to_string(root().join("docs/json.md"))?;
    let mut all: BTreeMap<String, Fields> = BTreeMap::new();
    let mut section = String::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            section = title.trim_matches('`').to_lowercase();
        }
        let Some(row) = line.strip_prefix("| `") else {
            continue;
        };
        let (names, rest) = row.split_once(" | ").doing(format!("no type: {line}"))?;
        let kinds = rest.split(" | ").next().unwrap_or_default();
        let kinds: BTreeSet<&'static str> = kinds
            .split(" or ")
            .map(|kind| match kind.trim() {
                "text" => Ok("text"),
                "number" => Ok("number"),
                "true/false" => Ok("true/false"),
                "null" => Ok("null"),
                other => Err(Failure::new(format!("'{other}' is not a type: {line}"))),
            })
            .collect::<Outcome<_>>()?;
        for name in names.split("`, `") {
            let name = name.trim_end_matches('`').to_owned();
            let fields = all.entry(section.clone()).or_default();
            ensure!(
                fields.insert(name.clone(), kinds.clone()).is_none(),
                "{name} comes twice in {section}"
            );
        }
    }
    Ok(all)
}

/// The places and types of everything in a value that is neither a list nor an object.
fn collect(value: &Value, place: &str, found: &mut Fields) {
    // What is in a directory has the same fields as what is named.
    let place = place.replace(".children[]", "");
    let mut note = |kind| {
        found.entry(place.clone()).or_default().insert(kind);
    };
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let dot = if place.is_empty() { "" } else { "." };
                collect(value, &format!("{place}{dot}{name}"), found);
            }
        }
        Value::Array(list) => {
            for value in list {
                collect(value, &format!("{place}[]"), found);
            }
        }
        Value::Null => note("null"),
        Value::Bool(_) => note("true/false"),
        Value::Number(_) => note("number"),
        Value::String(_) => note("text"),
    }
}

/// All that commands printed, by command.
#[derive(Default)]
struct Printed(BTreeMap<String, Fields>);

impl Printed {
    fn add(&mut self, command: &str, text: &str) -> Outcome {
        let value: Value = serde_json::from_str(text).doing(format!("{command}: {text}"))?;
        ensure_eq!(value["schema"], 1, "{command}");
        let fields = self.0.entry(command.to_owned()).or_default();
        collect(&value, "", fields);
        Ok(())
    }

    /// Runs a command with `--json`, however it ends.
    fn run(&mut self, words: &[&str], cwd: &Mount) -> Outcome {
        let command = words[0];
        let finished = shale().args(words).arg("--json").cwd(cwd.path()).run()?;
        self.add(command, &finished.text())
            .doing(finished.describe())?;
        let value: Value = serde_json::from_slice(&finished.stdout)?;
        ensure_eq!(value["command"], command);
        Ok(())
    }
}

/// The element of a list that a field is in, or is part of.
fn list_of(place: &str) -> Option<&str> {
    place.rfind("[]").map(|at| &place[..at + 2])
}

fn compare(command: &str, documented: &Fields, printed: &Fields) -> Outcome {
    for (place, kinds) in printed {
        let known = documented
            .get(place)
            .doing(format!("{command}: {place} is not in docs/json.md"))?;
        ensure!(
            kinds.is_subset(known),
            "{command}: {place} is {kinds:?}, documented as {known:?}"
        );
    }
    for place in documented.keys() {
        // Of a list that was empty nothing can be said.
        let expected = list_of(place).is_none_or(|list| {
            let inside = format!("{list}.");
            printed.contains_key(list) || printed.keys().any(|it| it.starts_with(&inside))
        });
        ensure!(
            !expected || printed.contains_key(place),
            "{command}: {place} is documented and was not printed"
        );
    }
    Ok(())
}

/// Reports of every kind on files of every kind.
fn print_all(case: &Case, mount: &mut Mount, printed: &mut Printed) -> Outcome {
    let sample = |name: &str| root().join("layout/tests/samples").join(name);
    let samples = [
        "classic.nc",
        "nc4_chunked.nc",
        "nc4_deflated.nc",
        "nc4_contiguous.nc",
    ];
    for name in samples {
        fs::copy(sample(name), mount.path().join(name))?;
    }
    fs::create_dir(mount.path().join("inner"))?;
    symlink("nowhere", mount.path().join("inner/link"))?;
    let noise = Rng::new(3).bytes(300_000);
    fs::write(mount.path().join("inner/noise"), &noise)?;
    // Unwritten, perhaps, and stored, certainly.
    printed.run(&["stat", ".", "inner"], mount)?;
    for name in samples {
        File::open(mount.path().join(name))?.sync_all()?;
        printed.run(&["stat", "--vars", name], mount)?;
        printed.run(&["layout", name], mount)?;
    }
    printed.run(&["layout", "inner/noise"], mount)?;
    printed.run(&["stat", "."], mount)?;
    printed.run(&["policy", "set", "codec=lz4", "inner"], mount)?;
    printed.run(&["policy", "show", "inner"], mount)?;
    printed.run(&["policy", "explain", "inner"], mount)?;
    printed.run(&["settle", "."], mount)?;
    let open = File::options()
        .append(true)
        .open(mount.path().join("inner/noise"))?;
    printed.run(&["settle", "--wait", "."], mount)?;
    drop(open);
    printed.run(&["settle", "--cancel", "."], mount)?;
    printed.run(&["gc", "."], mount)?;
    printed.run(&["estimate", "."], mount)?;
    printed.run(&["estimate", "inner"], mount)?;
    printed.run(&["doctor"], mount)?;
    printed.run(&["doctor", "."], mount)?;
    let copy = case.dir("copy")?;
    let target = copy.to_string_lossy().into_owned();
    fs::write(copy.join("classic.nc"), "in the way")?;
    printed.run(&["export", ".", &target], mount)?;
    ensure!(!mount.path().join("missing").exists(), "a refusal to count");
    top(mount, printed)?;
    mount.unmount()?;
    let store = mount.store().to_string_lossy().into_owned();
    printed.run(&["stat", &store], mount)?;
    printed.run(&["fsck", &store], mount)?;
    // Damage, so that there are problems to name.
    for (name, entry) in shale_tests::read_tree(&mount.store().join("packs"))? {
        if entry.mode & 0o170_000 == 0o100_000 {
            let path = mount.store().join("packs").join(name);
            let pack = File::options().write(true).open(path)?;
            pack.write_all_at(&[0x5a; 64], entry.size / 2)?;
        }
    }
    printed.run(&["fsck", &store], mount)?;
    for command in ["stat", "fsck", "mount"] {
        let failed = shale().args([command, "--json", "--wrong"]).run()?;
        printed.add("errors", &failed.stderr)?;
    }
    Ok(())
}

/// A sample of a mount that is at work.
fn top(mount: &Mount, printed: &mut Printed) -> Outcome {
    let over = AtomicBool::new(false);
    let path = mount.path().join("busy");
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| -> Outcome {
            let mut file = File::create(&path)?;
            while !over.load(Ordering::SeqCst) {
                file.write_all(&[7; 100_000])?;
                file.sync_all()?;
            }
            Ok(())
        });
        let result = printed.run(&["top", "."], mount);
        over.store(true, Ordering::SeqCst);
        writer
            .join()
            .map_err(|_| Failure::new("the writer panicked"))??;
        result
    })
}

pub(crate) fn fields(case: &Case) -> Outcome {
    let all = documented()?;
    let mut printed = Printed::default();
    let mut mount = case.mount("fs", &["-o", "settle=off"])?;
    print_all(case, &mut mount, &mut printed)?;
    let every = all
        .get("every report")
        .doing("no section for every report")?;
    for (command, found) in &printed.0 {
        let own = all
            .get(command)
            .doing(format!("no section for {command}"))?;
        let mut fields = every.clone();
        fields.extend(own.clone());
        compare(command, &fields, found)?;
    }
    // Every command that knows --json was tried.
    let help = shale().arg("--help").ok()?;
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    for line in listed.take_while(|line| !line.is_empty()) {
        let name = line.split_whitespace().next().unwrap_or_default();
        if name == "help" {
            continue;
        }
        let own = Cmd::new(shale_tests::binary())
            .args([name, "--help"])
            .ok()?;
        ensure_eq!(
            own.contains("--json"),
            printed.0.contains_key(name),
            "the report of {name}"
        );
    }
    Ok(())
}
