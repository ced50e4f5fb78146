//! Bytes of every class on disk are flipped, zeroed, cut off, exchanged and replaced by older
//! ones. Nothing wrong is ever served, nothing panics, and what is lost is reported.

#[path = "tamper/specimen.rs"]
mod specimen;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use shale_backing::faults::copy_dir;
use shale_store::fsck::{FsckOptions, fsck};
use shale_tests::{Case, Failure, Need, Outcome, Rng, Suite, ensure, note, rounds, seed, tally};

use specimen::{Contents, Found, Specimen};

fn main() -> ExitCode {
    Suite::new("tamper")
        .need(Need::Shale)
        .limit(Duration::from_secs(600))
        .test("with_any_class_of_bytes", with_any_class_of_bytes)
        .run()
}

/// What is done to a file.
#[derive(Clone, Copy, Debug)]
enum Harm {
    FlipBit,
    ZeroSector,
    Truncate,
    ExchangeSectors,
    OlderCopy,
    Remove,
}

const HARMS: [Harm; 6] = [
    Harm::FlipBit,
    Harm::ZeroSector,
    Harm::Truncate,
    Harm::ExchangeSectors,
    Harm::OlderCopy,
    Harm::Remove,
];
const SECTOR: usize = 512;

impl Harm {
    /// Does it; `false` when it would change nothing.
    fn inflict(self, store: &Path, older: &Path, file: &Path, rng: &mut Rng) -> Outcome<bool> {
        let target = store.join(file);
        let before = fs::read(&target)?;
        let mut bytes = before.clone();
        let sectors = bytes.len().div_ceil(SECTOR).max(1) as u64;
        let sector = |rng: &mut Rng, len: usize| {
            let at = rng.below(sectors) as usize * SECTOR;
            at..(at + SECTOR).min(len)
        };
        match self {
            _ if bytes.is_empty() => return Ok(false),
            Self::FlipBit => {
                let at = rng.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << rng.below(8);
            }
            Self::ZeroSector => {
                let range = sector(rng, bytes.len());
                bytes[range].fill(0);
            }
            Self::Truncate => bytes.truncate(rng.below(bytes.len() as u64) as usize),
            Self::ExchangeSectors => {
                let (a, b) = (sector(rng, bytes.len()), sector(rng, bytes.len()));
                let len = a.len().min(b.len());
                for n in 0..len {
                    bytes.swap(a.start + n, b.start + n);
                }
            }
            Self::OlderCopy => match fs::read(older.join(file)) {
                Ok(old) => bytes = old,
                Err(_) => return Ok(false),
            },
            Self::Remove => {
                fs::remove_file(&target)?;
                return Ok(true);
            }
        }
        fs::write(&target, &bytes)?;
        Ok(bytes != before)
    }
}

/// All files of a store, by class.
fn classes(store: &Path) -> Outcome<BTreeMap<&'static str, Vec<PathBuf>>> {
    let mut classes: BTreeMap<&str, Vec<PathBuf>> = BTreeMap::new();
    let mut dirs = vec![PathBuf::new()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(store.join(&dir))? {
            let entry = entry?;
            let path = dir.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                dirs.push(path);
                continue;
            }
            let name = path.to_string_lossy().into_owned();
            let class = match name.as_str() {
                "superblock" => "superblock",
                "lock" | "shale.log" => continue,
                _ if name.starts_with("packs/catalog") => "catalogue",
                _ if name.starts_with("packs/") => "pack",
                _ if name.starts_with("index/sled") => "sled",
                _ if name.starts_with("index/journal") => "journal",
                _ if name.starts_with("index/snapshot") => "snapshot",
                _ if name.starts_with("index/") => "checkpoint",
                _ => return Err(Failure::new(format!("{name} belongs to no class"))),
            };
            classes.entry(class).or_default().push(path);
        }
    }
    for files in classes.values_mut() {
        files.sort();
    }
    Ok(classes)
}

fn with_any_class_of_bytes(case: &Case) -> Outcome {
    let seed = seed()?;
    let work = case.work();
    let specimen = Specimen::new(&work.join("made"))?;
    let (pristine, older) = (specimen.now(), specimen.older());
    let classes = classes(pristine)?;
    let harmed = work.join("harmed");
    let mut outcomes: BTreeMap<(&str, String), [u64; 3]> = BTreeMap::new();
    let mut injuries = 0;
    for round in rounds(4) {
        for (class, files) in &classes {
            for harm in HARMS {
                let mut rng = Rng::new(seed ^ round << 40 ^ injuries);
                let file = &files[rng.below(files.len() as u64) as usize];
                if harmed.exists() {
                    fs::remove_dir_all(&harmed)?;
                }
                copy_dir(pristine, &harmed)?;
                if !harm.inflict(&harmed, older, file, &mut rng)? {
                    continue;
                }
                injuries += 1;
                let what = format!("{harm:?} in {}, round {round}", file.display());
                let verdict = examine(&harmed, specimen.contents())
                    .map_err(|e| Failure::new(format!("{what}: {e}")))?;
                let counts = outcomes.entry((class, format!("{harm:?}"))).or_default();
                counts[verdict as usize] += 1;
            }
        }
    }
    for ((class, harm), [harmless, reported, refused]) in &outcomes {
        note(format!(
            "{class}, {harm}: {harmless} harmless, {reported} reported, {refused} refused"
        ));
    }
    ensure!(
        injuries > 100,
        "only {injuries} injuries: nothing was tested"
    );
    tally("bytes tampered with", injuries, injuries, 0);
    Ok(())
}

#[derive(Clone, Copy, Debug)]
enum Verdict {
    /// Everything is as it was.
    Harmless,
    /// Something is missing or cannot be read, and fsck says so.
    Reported,
    /// The store does not open.
    Refused,
}

/// Checks and opens a store that something was done to.
fn examine(store: &Path, contents: &Contents) -> Outcome<Verdict> {
    // A copy, because opening repairs what it can.
    let report = fsck(store, &FsckOptions::default(), &mut |_, _| {});
    let clean = report.as_ref().is_ok_and(|r| r.problems.is_empty());
    let found = match specimen::read(store, contents)? {
        Some(found) => found,
        None => {
            ensure!(!clean, "the store does not open, but fsck finds it clean");
            rebuild(store, contents)?;
            return Ok(Verdict::Refused);
        }
    };
    let bad: Vec<&String> = found
        .iter()
        .filter(|(_, found)| **found != Found::Same)
        .map(|(name, _)| name)
        .collect();
    for (name, found) in &found {
        ensure!(*found != Found::Different, "{name} has other contents");
    }
    if bad.is_empty() {
        return Ok(Verdict::Harmless);
    }
    ensure!(!clean, "{bad:?} cannot be read, but fsck finds nothing");
    Ok(Verdict::Reported)
}

/// What `fsck --rebuild` brings back of a store that does not open is right.
fn rebuild(store: &Path, contents: &Contents) -> Outcome {
    let options = FsckOptions { rebuild: true };
    if fsck(store, &options, &mut |_, _| {}).is_err() {
        return Ok(());
    }
    let found = specimen::read(store, contents)?
        .ok_or_else(|| Failure::new("the store does not open after a rebuild"))?;
    for (name, found) in &found {
        ensure!(
            *found != Found::Different,
            "{name} was rebuilt with other contents"
        );
    }
    Ok(())
}
