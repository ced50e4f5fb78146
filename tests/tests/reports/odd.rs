//! Names and kinds of files that a listing must survive, and what it costs.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, symlink};
use std::os::unix::net::UnixListener;

use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::mkfifo;
use serde_json::Value;
use shale_tests::{Case, Context, Failure, Outcome, ensure, ensure_eq, shale};

use super::{json, number, report};

/// Every name once, as what it is, on one line, in JSON too.
pub(crate) fn odd_things(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &["-o", "settle=off"])?;
    let dir = mount.path().join("odd");
    fs::create_dir(&dir)?;
    let at = |name: &[u8]| dir.join(OsStr::from_bytes(name));
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    symlink("nowhere", at(b"dangling"))?;
    symlink("../odd", at(b"loop"))?;
    mkfifo(&at(b"pipe"), mode)?;
    mknod(&at(b"null"), SFlag::S_IFCHR, mode, makedev(1, 3))?;
    drop(UnixListener::bind(at(b"socket"))?);
    fs::create_dir(at(b"inner\xff"))?;
    let files: [&[u8]; 9] = [
        b"-dash",
        b"with space",
        b"new\nline",
        b"tab\there",
        b"\x1b[31mred",
        b"bad\xff",
        b"bad\xfe",
        "日本語".as_bytes(),
        b"empty",
    ];
    for name in files {
        let file = File::create(at(name))?;
        if name != b"empty" {
            file.write_all_at(b"something", 0)?;
        }
        file.sync_all()?;
    }
    fs::hard_link(at(b"-dash"), at(b"second name"))?;
    let value = json(shale().args(["stat", "--json"]).arg(&dir))?;
    let children = value["entries"][0]["children"].as_array();
    let children = children.doing("no children")?;
    let mut found: Vec<(&str, &str)> = children
        .iter()
        .filter_map(|child| Some((child["path"].as_str()?, child["kind"].as_str()?)))
        .collect();
    let mut expected = vec![
        ("-dash", "file"),
        ("\u{1b}[31mred", "file"),
        ("bad\\xfe", "file"),
        ("bad\\xff", "file"),
        ("dangling", "symlink"),
        ("empty", "file"),
        ("inner\\xff", "directory"),
        ("loop", "symlink"),
        ("new\nline", "file"),
        ("null", "device"),
        ("pipe", "fifo"),
        ("second name", "file"),
        ("socket", "socket"),
        ("tab\there", "file"),
        ("with space", "file"),
        ("日本語", "file"),
    ];
    found.sort_unstable();
    expected.sort_unstable();
    ensure_eq!(found, expected);
    let text = shale().arg("stat").arg(&dir).ok()?;
    ensure_eq!(text.lines().count(), expected.len() + 2, "{text}");
    ensure!(!text.contains('\u{1b}'), "reaches the terminal: {text:?}");
    for child in children {
        let name = child["path"].as_str().unwrap_or_default();
        if !name.contains("\\x") {
            let command = shale().args(["stat", "--json", "--"]);
            let finished = command.arg(dir.join(name)).run()?;
            if name == "dangling" {
                finished.status_is(66)?;
            } else {
                let entry: Value = serde_json::from_str(&finished.success()?.text())?;
                ensure!(entry["entries"][0]["kind"].is_string(), "{entry:#}");
            }
        }
    }
    mount.unmount()
}

/// Totals lag behind by some seconds; a directory says so, at any depth, and others do not.
pub(crate) fn on_its_way(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &["-o", "settle=off"])?;
    let [outer, inner, other] = ["a", "a/b", "c"].map(|name| mount.path().join(name));
    fs::create_dir_all(&inner)?;
    fs::create_dir(&other)?;
    let path = inner.join("file");
    let mut file = File::create(&path)?;
    // It may be stored while we look: only what is seen in between counts.
    loop {
        file.write_all(&[7; 10_000])?;
        file = File::options().append(true).open(&path)?;
        let is_writing = || Ok::<_, Failure>(report(&path, "state")? == "writing");
        if !is_writing()? {
            continue;
        }
        let states: Vec<String> = [mount.path(), &outer, &inner, &other]
            .into_iter()
            .map(|directory| report(directory, "state"))
            .collect::<Outcome<_>>()?;
        if is_writing()? {
            ensure_eq!(states, ["writing", "writing", "writing", "stored"]);
            break;
        }
    }
    file.sync_all()?;
    for directory in [mount.path(), &outer, &inner] {
        ensure_eq!(report(directory, "state")?, "stored");
        ensure!(report(directory, "raw")?.parse::<u64>()? >= 10_000, "raw");
    }
    drop(file);
    mount.unmount()
}

/// Directories of many files are listed with one question for each.
pub(crate) fn cheap(case: &Case) -> Outcome {
    const FILES: u64 = 500;
    let mut mount = case.mount("fs", &["-o", "settle=off"])?;
    for number in 0..FILES {
        fs::write(mount.path().join(format!("f{number}")), b"x")?;
    }
    let questions = || -> Outcome<u64> {
        let live: Value = serde_json::from_str(&report(mount.path(), "live")?)?;
        let mut operations = live["operations"].as_array().into_iter().flatten();
        let asked = operations.find(|operation| operation["name"] == "getxattr");
        number(&asked.doing("no figures of getxattr")?["count"])
    };
    let before = questions()?;
    let text = shale().arg("stat").arg(mount.path()).ok()?;
    let asked = questions()? - before;
    ensure!(text.lines().count() as u64 > FILES, "{text}");
    ensure!(
        asked < FILES + FILES / 10,
        "{asked} questions about {FILES} files"
    );
    mount.unmount()
}
