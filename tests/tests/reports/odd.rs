//! Names and kinds of files that a listing must survive, and what it costs.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, symlink};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::stat::{Mode, SFlag, makedev, mknod};
use nix::unistd::mkfifo;
use serde_json::Value;
use shale_tests::{Case, Cmd, Context, Failure, Outcome, Rng, ensure, ensure_eq, note, shale};

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

/// `cp -r` and then `shale stat`, as in the README.
pub(crate) fn just_copied(case: &Case) -> Outcome {
    let from = case.dir("run1")?;
    let mut rng = Rng::new(8);
    let mut all = 0;
    for number in 0..40 {
        let bytes = rng.bytes(10_000 + number * 20_000);
        all += bytes.len() as u64;
        let dir = from.join(format!("d{}", number % 3));
        fs::create_dir_all(&dir)?;
        fs::write(dir.join(format!("f{number}")), bytes)?;
    }
    let mut mount = case.mount("fs", &["-o", "settle=off"])?;
    Cmd::new("cp").arg("-r").arg(&from).arg(mount.path()).ok()?;
    let value = json(shale().args(["stat", "--json"]).arg(mount.path()))?;
    let whole = &value["entries"][0];
    ensure_eq!(number(&whole["raw"])?, all, "{value:#}");
    ensure_eq!(number(&whole["children"][0]["raw"])?, all, "{value:#}");
    let [stored, unwritten] = ["stored_raw", "unwritten"].map(|name| number(&whole[name]));
    ensure_eq!(stored? + unwritten?, all, "{value:#}");
    // With everything stored nothing changes but that.
    Cmd::new("find")
        .arg(mount.path())
        .args(["-type", "f", "-exec", "sync", "{}", "+"])
        .ok()?;
    let value = json(shale().args(["stat", "--json"]).arg(mount.path()))?;
    let whole = &value["entries"][0];
    ensure_eq!(number(&whole["raw"])?, all, "{value:#}");
    ensure_eq!(number(&whole["stored_raw"])?, all, "{value:#}");
    ensure_eq!(number(&whole["unwritten"])?, 0, "{value:#}");
    mount.unmount()
}

/// Every part of a file compresses alike, so its ratio is the same at all times.
pub(crate) fn while_writing(case: &Case) -> Outcome {
    const PIECE: usize = 512 << 10;
    let mut mount = case.mount("fs", &["-o", "settle=off"])?;
    let path = mount.path().join("file");
    let mut file = File::create(&path)?;
    let mut rng = Rng::new(4);
    let (mut before_the_end, mut written) = (0, 0);
    for _ in 0..96 {
        let mut piece = rng.bytes(PIECE);
        piece
            .chunks_mut(4096)
            .step_by(2)
            .for_each(|page| page.fill(0));
        file.write_all(&piece)?;
        // Passes what was written on to the daemon.
        file = File::options().append(true).open(&path)?;
        written += PIECE as u64;
        let value = json(shale().args(["stat", "--json"]).arg(&path))?;
        let entry = &value["entries"][0];
        ensure_eq!(number(&entry["raw"])?, written, "{value:#}");
        if let Some(ratio) = entry["ratio"].as_f64() {
            ensure!((1.9..2.1).contains(&ratio), "{value:#}");
            before_the_end += u64::from(number(&entry["unwritten"])? > 0);
            let shown = report(&path, "ratio")?.parse::<f64>()?;
            ensure!((1.9..2.1).contains(&shown), "{shown}");
        }
    }
    note(format!("{before_the_end} looks at a file in part stored"));
    // Over what is there: all of it is stored, and some will be replaced.
    file.sync_all()?;
    let mut piece = rng.bytes(PIECE);
    piece
        .chunks_mut(4096)
        .step_by(2)
        .for_each(|page| page.fill(0));
    let over = File::options().write(true).open(&path)?;
    over.write_all_at(&piece, 1 << 20)?;
    drop(over);
    let value = json(shale().args(["stat", "--json"]).arg(&path))?;
    let entry = &value["entries"][0];
    ensure_eq!(number(&entry["raw"])?, written, "{value:#}");
    ensure_eq!(number(&entry["stored_raw"])?, written, "{value:#}");
    drop(file);
    mount.unmount()
}

/// Files grow while a directory is listed.
pub(crate) fn growing(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &["-o", "settle=off"])?;
    let root = mount.path().to_owned();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| -> Outcome {
            let bytes = Rng::new(2).bytes(64 << 10);
            while !over.load(Ordering::SeqCst) {
                for number in 0..8 {
                    let path = root.join(format!("f{number}"));
                    let file = File::options().append(true).create(true).open(path);
                    file?.write_all(&bytes)?;
                }
            }
            Ok(())
        });
        let looked = (|| -> Outcome {
            for _ in 0..40 {
                let value = json(shale().args(["stat", "--json"]).arg(&root))?;
                let whole = &value["entries"][0];
                let parts = super::sum(&whole["children"], "raw")?;
                ensure!(number(&whole["raw"])? >= parts, "{parts} in {value:#}");
            }
            Ok(())
        })();
        over.store(true, Ordering::SeqCst);
        let wrote = writer
            .join()
            .map_err(|_| Failure::new("the writer panicked"))?;
        looked.and(wrote)
    })?;
    mount.unmount()
}

/// A listing asks once for each file of a large directory.
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
