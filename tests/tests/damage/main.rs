//! Damaged stores: a broken index is rebuilt, broken data is never served.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use shale_tests::{
    Case, Cmd, Context, Entry, Failure, Mount, Need, Outcome, Rng, Sample, Suite, ensure,
    ensure_eq, note, read_tree, same_trees, seed, shale,
};

fn main() -> ExitCode {
    Suite::new("damage")
        .need(Need::Shale)
        .limit(Duration::from_secs(300))
        .test("missing_sled_directory_is_rebuilt", missing_sled)
        .test("truncated_sled_files_are_rebuilt", truncated_sled)
        .test("flipped_bytes_in_sled_are_rebuilt", flipped_sled)
        .test("torn_tail_of_the_journal_is_dropped", torn_journal)
        .test(
            "fsck_rebuild_recovers_names_and_contents_from_packs",
            rebuild_from_packs,
        )
        .test(
            "fsck_repair_rewrites_pack_directories_and_the_catalog",
            repair,
        )
        .test("flipped_bytes_in_packs_are_never_served", flipped_packs)
        .test("damage_is_logged_with_the_path_of_the_file", named)
        .run()
}

type Tree = BTreeMap<PathBuf, Entry>;

/// A store with a sample tree in it, unmounted, and an untouched copy.
struct Aged {
    mount: Mount,
    pristine: PathBuf,
    tree: Tree,
}

impl Aged {
    /// Two sessions, so that not everything is in one pack or one journal.
    fn new(case: &Case) -> Outcome<Aged> {
        let mut mount = case.mount("fs", &[])?;
        fs::create_dir(mount.path().join("first"))?;
        Sample::new(1).create(&mount.path().join("first"))?;
        mount.remount()?;
        fs::create_dir(mount.path().join("second"))?;
        Sample::new(2).create(&mount.path().join("second"))?;
        fs::remove_file(mount.path().join("first/plain/noise-9"))?;
        fs::rename(
            mount.path().join("first/plain/noise-8"),
            mount.path().join("second/renamed"),
        )?;
        let file = File::options()
            .write(true)
            .open(mount.path().join("first/plain/noise-7"))?;
        file.write_all_at(&Rng::new(3).bytes(10_000), 500_000)?;
        drop(file);
        let tree = read_tree(mount.path())?;
        mount.unmount()?;
        let pristine = case.work().join("pristine");
        Cmd::new("cp")
            .arg("-a")
            .arg(mount.store())
            .arg(&pristine)
            .ok()?;
        Ok(Aged {
            mount,
            pristine,
            tree,
        })
    }

    /// Puts the untouched copy back.
    fn restore(&self) -> Outcome {
        fs::remove_dir_all(self.mount.store())?;
        Cmd::new("cp")
            .arg("-a")
            .arg(&self.pristine)
            .arg(self.mount.store())
            .ok()?;
        Ok(())
    }

    /// Mounts and fails unless everything is there and the store is clean afterwards.
    fn serves_everything(&mut self, damage: &str) -> Outcome {
        println!("after {damage}");
        self.mount.start()?;
        same_trees(&read_tree(self.mount.path())?, &self.tree)?;
        // It must be a working file system, not only a readable one.
        let probe = self.mount.path().join("probe");
        fs::write(&probe, b"probe")?;
        File::open(&probe)?.sync_all()?;
        fs::remove_file(&probe)?;
        self.mount.unmount()?;
        self.mount.fsck_is_clean()
    }

    fn sled(&self) -> PathBuf {
        self.mount.store().join("index/sled")
    }

    /// The files below a directory of the store, with their sizes; empty ones left out.
    fn files(&self, directory: &Path) -> Outcome<Vec<(PathBuf, u64)>> {
        let tree = read_tree(directory)?;
        let found: Vec<_> = tree
            .iter()
            .filter(|(_, entry)| entry.mode & 0o170_000 == 0o100_000 && entry.size > 0)
            .map(|(path, entry)| (directory.join(path), entry.size))
            .collect();
        ensure!(
            !found.is_empty(),
            "no files to damage in {}",
            directory.display()
        );
        Ok(found)
    }
}

fn flip(path: &Path, position: u64, mask: u8) -> Outcome {
    let file = File::options().read(true).write(true).open(path)?;
    let mut byte = [0];
    file.read_exact_at(&mut byte, position)?;
    Ok(file.write_all_at(&[byte[0] ^ mask], position)?)
}

fn missing_sled(case: &Case) -> Outcome {
    let mut aged = Aged::new(case)?;
    aged.serves_everything("nothing at all")?;
    aged.restore()?;
    fs::remove_dir_all(aged.sled())?;
    aged.serves_everything("removing index/sled")?;
    // Files gone, directory there.
    aged.restore()?;
    for (path, _) in aged.files(&aged.sled())? {
        fs::remove_file(path)?;
    }
    aged.serves_everything("emptying index/sled")
}

fn truncated_sled(case: &Case) -> Outcome {
    let mut aged = Aged::new(case)?;
    let mut rounds = 0;
    for (path, size) in aged.files(&aged.sled())? {
        for length in [0, 1, size / 3, size.saturating_sub(1)] {
            aged.restore()?;
            File::options().write(true).open(&path)?.set_len(length)?;
            aged.serves_everything(&format!(
                "truncating {} from {size} to {length}",
                path.display()
            ))?;
            rounds += 1;
        }
    }
    note(format!("{rounds} truncations"));
    Ok(())
}

fn flipped_sled(case: &Case) -> Outcome {
    let mut aged = Aged::new(case)?;
    let mut rng = Rng::new(seed()?);
    let files = aged.files(&aged.sled())?;
    for _ in 0..16 {
        aged.restore()?;
        // Half of the rounds one byte, half of them many.
        let count = if rng.one_in(2) { 1 } else { 200 };
        for _ in 0..count {
            let (path, size) = &files[rng.below(files.len() as u64) as usize];
            flip(path, rng.below(*size), rng.between(1, 255) as u8)?;
        }
        aged.serves_everything(&format!("flipping {count} bytes"))?;
    }
    Ok(())
}

fn torn_journal(case: &Case) -> Outcome {
    let mut aged = Aged::new(case)?;
    let mut rng = Rng::new(4);
    let index = aged.mount.store().join("index");
    let mut journals: Vec<PathBuf> = fs::read_dir(&index)?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("journal-"))
        })
        .collect();
    journals.sort();
    let Some(last) = journals.pop() else {
        return Err(shale_tests::Failure::new("no journal in index/"));
    };
    for length in [1usize, 7, 100, 5000] {
        for noise in [false, true] {
            aged.restore()?;
            let mut bytes = fs::read(&last)?;
            bytes.extend(if noise {
                rng.bytes(length)
            } else {
                vec![0; length]
            });
            fs::write(&last, bytes)?;
            aged.serves_everything(&format!("a torn tail of {length} bytes (noise: {noise})"))?;
        }
    }
    Ok(())
}

fn rebuild_from_packs(case: &Case) -> Outcome {
    let mut aged = Aged::new(case)?;
    fs::remove_dir_all(aged.mount.store().join("index"))?;
    let finished = aged.mount.fsck(&[])?;
    ensure!(
        !finished.status.success(),
        "fsck finds nothing wrong without an index: {}",
        finished.describe()
    );
    aged.mount.fsck(&["--rebuild"])?.status_is(1)?;
    aged.mount.fsck_is_clean()?;
    aged.mount.start()?;
    // Names and contents are promised; what else comes back is not.
    let found = read_tree(aged.mount.path())?;
    let mut missing = Vec::new();
    let mut compared = 0;
    for (path, entry) in &aged.tree {
        let file = entry.mode & 0o170_000 == 0o100_000;
        match found.get(path) {
            Some(other) if file => {
                compared += 1;
                ensure_eq!(other.size, entry.size, "size of {}", path.display());
                ensure!(
                    other.contents == entry.contents,
                    "contents of {} differ",
                    path.display()
                );
            }
            Some(_) => {}
            None if file => missing.push(path),
            None => {}
        }
    }
    ensure!(
        missing.is_empty(),
        "{} files did not come back: {missing:?}",
        missing.len()
    );
    note(format!("{compared} files recovered"));
    let whole = same_trees(&found, &aged.tree);
    note(if whole.is_ok() {
        "attributes, links and times as well"
    } else {
        "not all attributes, links and times"
    });
    fs::write(aged.mount.path().join("probe"), b"probe")?;
    aged.mount.unmount()?;
    aged.mount.fsck_is_clean()
}

fn repair(case: &Case) -> Outcome {
    let mut aged = Aged::new(case)?;
    let packs = aged.files(&aged.mount.store().join("packs"))?;
    let is_catalog = |path: &Path| path.to_string_lossy().contains("/catalog/");
    let damage = [
        (
            "directory",
            packs.iter().find(|(path, _)| !is_catalog(path)),
        ),
        ("catalog", packs.iter().find(|(path, _)| is_catalog(path))),
    ];
    for (what, place) in damage {
        let (path, size) = place.ok_or_else(|| Failure::new(format!("there is no {what}")))?;
        aged.restore()?;
        // The last byte of a pack is one of its trailer.
        flip(path, size - 1, 1)?;
        let found = aged.mount.fsck(&["--json"])?.status_is(4)?;
        let repaired = aged.mount.fsck(&["--json", "--repair"])?.status_is(1)?;
        for (finished, done) in [(found, false), (repaired, true)] {
            let report: serde_json::Value = serde_json::from_str(&finished.text())
                .map_err(|e| Failure::new(format!("{e}: {}", finished.describe())))?;
            let problems = report["problems"].as_array().map_or(&[][..], |list| list);
            ensure!(!problems.is_empty(), "no problems in {report}");
            for problem in problems {
                let text = problem["message"].as_str().unwrap_or_default();
                ensure!(
                    text.contains(what) && text.contains("no data is lost"),
                    "{text}"
                );
                ensure_eq!(text.contains("--repair"), !done, "advice in {text}");
                ensure_eq!(
                    problem["status"],
                    if done { 1 } else { 4 },
                    "status of {text}"
                );
            }
        }
        aged.mount.fsck_is_clean()?;
        aged.serves_everything(&format!("a repaired {what}"))?;
    }
    Ok(())
}

fn flipped_packs(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &[])?;
    let mut rng = Rng::new(seed()?);
    let mut expected = BTreeMap::new();
    for index in 0..12 {
        let name = format!("observation-{index:02}.nc");
        let bytes = rng.bytes(700_000 + index * 10_000);
        fs::write(mount.path().join(&name), &bytes)?;
        expected.insert(name, bytes);
    }
    mount.unmount()?;
    mount.fsck_is_clean()?;
    let aged = Aged {
        pristine: case.work().join("pristine"),
        tree: BTreeMap::new(),
        mount,
    };
    Cmd::new("cp")
        .arg("-a")
        .arg(aged.mount.store())
        .arg(&aged.pristine)
        .ok()?;
    let mut aged = aged;
    let packs = aged.files(&aged.mount.store().join("packs"))?;
    let (mut hits, rounds) = (0, 16);
    for round in 0..rounds {
        aged.restore()?;
        let (path, size) = packs
            .iter()
            .max_by_key(|(_, size)| *size)
            .expect("there is a pack");
        // Spread over the pack; the footer has rounds of its own at the end.
        let position = if round < rounds - 2 {
            rng.below(*size)
        } else {
            size - 1 - rng.below((*size).min(200))
        };
        flip(path, position, rng.between(1, 255) as u8)?;
        println!("round {round}: flipped byte {position} of {size}");
        let report = aged.mount.fsck(&[])?;

        aged.mount.start()?;
        let mut broken = Vec::new();
        for (name, bytes) in &expected {
            match fs::read(aged.mount.path().join(name)) {
                Ok(found) => ensure!(
                    found == *bytes,
                    "round {round}: wrong bytes served from {name}"
                ),
                Err(error) => {
                    ensure_eq!(
                        error.raw_os_error(),
                        Some(nix::libc::EIO),
                        "round {round}: reading {name}"
                    );
                    broken.push(name);
                }
            }
        }
        aged.mount.unmount()?;
        ensure!(
            broken.len() <= 1,
            "round {round}: one flipped byte broke {broken:?}"
        );
        if let Some(name) = broken.first() {
            hits += 1;
            let report = report.status_is(4)?;
            let text = report.text() + &report.stderr;
            ensure!(
                text.contains(name.as_str()),
                "fsck does not name {name}: {text}"
            );
        }
    }
    note(format!("{hits} of {rounds} flipped bytes were in use"));
    ensure!(
        hits >= rounds / 2,
        "only {hits} of {rounds} flipped bytes had an effect; the packs are mostly noise"
    );
    Ok(())
}

/// Reading, settling, folding and collecting meet a damaged file: every line about it has its path.
fn named(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &["-o", "settle=off"])?;
    let directory = mount.path().join("run 1");
    fs::create_dir(&directory)?;
    let mut rng = Rng::new(11);
    let bytes = rng.bytes(300_000);
    fs::write(directory.join("bad\n.nc"), &bytes)?;
    // Makes most of the pack garbage, so that it is to be emptied.
    fs::write(directory.join("garbage"), rng.bytes(3_000_000))?;
    mount.unmount()?;
    let needle = &bytes[150_000..150_064];
    let mut spoiled = false;
    for (path, _) in files_below(&mount.store().join("packs"))? {
        let pack = fs::read(&path)?;
        if let Some(at) = pack.windows(64).position(|window| window == needle) {
            // The header of its frame: collecting looks no further.
            let magic = |window: &[u8]| window == shale_codec::MAGIC;
            let frame = pack[..at].windows(shale_codec::MAGIC.len());
            let frame = frame.rev().position(magic).doing("the frame")? + shale_codec::MAGIC.len();
            flip(&path, (at - frame + 20) as u64, 1)?;
            spoiled = true;
        }
    }
    ensure!(spoiled, "the contents are in no pack");
    mount.start()?;
    fs::remove_file(directory.join("garbage"))?;
    ensure!(
        fs::read(directory.join("bad\n.nc")).is_err(),
        "it was served"
    );
    shale().arg("settle").arg(&directory).run()?;
    shale()
        .args(["gc", "--wait", "--live", "100"])
        .arg(mount.path())
        .run()?;
    let log = mount.log_text();
    let about: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("is damaged"))
        .collect();
    for what in ["read: ", "settling failed", "cannot be rewritten"] {
        ensure!(
            about.iter().any(|line| line.contains(what)),
            "nothing about {what:?} in\n{log}"
        );
    }
    for line in about {
        ensure!(
            line.contains("/run 1/bad\\n.nc: ") && line.contains("inode"),
            "a line without path or inode: {line}"
        );
    }
    mount.unmount()?;
    let out = case.work().join("out");
    let exported = shale().arg("export").arg(mount.store()).arg(&out).run()?;
    ensure!(
        exported.describe().contains("/run 1/bad\\n.nc"),
        "{}",
        exported.describe()
    );
    Ok(())
}

/// All files below a directory, with their sizes.
fn files_below(top: &Path) -> Outcome<Vec<(PathBuf, u64)>> {
    let mut found = Vec::new();
    for (name, entry) in read_tree(top)? {
        if entry.mode & 0o170_000 == 0o100_000 {
            found.push((top.join(name), entry.size));
        }
    }
    Ok(found)
}
