//! Very many of everything: a few in the short form, realistic numbers in the long one.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rustix::fs::{SeekFrom, seek};
use shale_tests::{Case, Context, Outcome, Rng, ensure, ensure_eq, is_long, note, seed, tally};

const OPTIONS: [&str; 2] = ["--memory", "128M"];
const PER_DIRECTORY: u64 = 1000;
const THREADS: usize = 4;

fn choose<T>(short: T, long: T) -> T {
    if is_long() { long } else { short }
}

fn contents(number: u64) -> Vec<u8> {
    format!("file number {number}\n")
        .repeat(1 + number as usize % 7)
        .into_bytes()
}

/// Files in directories of a thousand, made and read by several at a time; all are read again
/// after a remount.
pub(crate) fn files(case: &Case) -> Outcome {
    let count: u64 = choose(8_000, 1_000_000);
    let directories = count / PER_DIRECTORY;
    let mut mount = case.mount("fs", &OPTIONS)?;
    let names = |directory: u64| {
        let first = directory * PER_DIRECTORY;
        (first..first + PER_DIRECTORY).map(|number| (number, format!("f{number}")))
    };
    let begun = Instant::now();
    let top = mount.path().to_owned();
    by_several(directories, |number| {
        let directory = top.join(format!("d{number}"));
        fs::create_dir(&directory)?;
        for (number, name) in names(number) {
            fs::write(directory.join(name), contents(number))?;
        }
        Ok(())
    })?;
    let made = begun.elapsed();
    mount.remount()?;
    by_several(directories, |number| {
        let directory = top.join(format!("d{number}"));
        for (number, name) in names(number) {
            let path = directory.join(name);
            let found = fs::read(&path).doing(format!("reading {}", path.display()))?;
            ensure!(found == contents(number), "{} differs", path.display());
        }
        ensure_eq!(fs::read_dir(&directory)?.count() as u64, PER_DIRECTORY);
        fs::remove_dir_all(directory)?;
        Ok(())
    })?;
    ensure_eq!(fs::read_dir(mount.path())?.count(), 0, "left after removal");
    note(format!(
        "{count} files, {:.0} made per second",
        count as f64 / made.as_secs_f64()
    ));
    tally("very many files", count, count, 0);
    mount.unmount()?;
    mount.fsck_is_clean()
}

/// Does something for every number below a limit, in several threads.
fn by_several(limit: u64, work: impl Fn(u64) -> Outcome + Sync) -> Outcome {
    let next = AtomicU64::new(0);
    let worker = || -> Outcome {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= limit {
                return Ok(());
            }
            // After a failure the others stop, too.
            work(number).inspect_err(|_| next.store(limit, Ordering::Relaxed))?;
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS).map(|_| scope.spawn(worker)).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().expect("a worker panicked"))
    })
}

/// The names of a directory; each must come once.
fn names(directory: &Path) -> Outcome<BTreeSet<OsString>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        ensure!(found.insert(name.clone()), "{name:?} is listed twice");
    }
    Ok(found)
}

/// One directory; names are looked up, renamed and removed in the middle of it.
pub(crate) fn entries(case: &Case) -> Outcome {
    let count: u64 = choose(12_000, 500_000);
    let mut mount = case.mount("fs", &OPTIONS)?;
    let top = mount.path().join("large");
    fs::create_dir(&top)?;
    let name = |number: u64| OsString::from(format!("entry-{number:07}"));
    for number in 0..count {
        File::create_new(top.join(name(number)))?;
    }
    let mut expected: BTreeSet<OsString> = (0..count).map(name).collect();
    ensure!(names(&top)? == expected, "names after making them");
    for number in (0..count).step_by(10) {
        let to = OsString::from(format!("moved-{number}"));
        fs::rename(top.join(name(number)), top.join(&to))?;
        fs::remove_file(top.join(name(number + 1)))?;
        expected.remove(&name(number));
        expected.remove(&name(number + 1));
        expected.insert(to);
    }
    mount.remount()?;
    ensure!(names(&top)? == expected, "names after a remount");
    for number in (0..count).step_by(997) {
        let there = top.join(name(number)).symlink_metadata().is_ok();
        ensure_eq!(there, expected.contains(&name(number)), "entry {number}");
    }
    fs::remove_dir_all(&top)?;
    note(format!("{count} entries in one directory"));
    tally("entries of one directory", count, count, 0);
    mount.unmount()?;
    mount.fsck_is_clean()
}

/// A file that consists almost only of holes.
pub(crate) fn holes(case: &Case) -> Outcome {
    let seed = seed()?;
    let mut rng = Rng::new(seed);
    let size: u64 = choose(64 << 30, 1 << 40);
    let mut mount = case.mount("fs", &OPTIONS)?;
    let path = mount.path().join("holes");
    let file = File::create_new(&path)?;
    file.set_len(size)?;
    // Far apart and in no order, the last byte too.
    let step = size / 64;
    let mut places: Vec<u64> = (0..64).map(|n| n * step + rng.below(step - 8192)).collect();
    places.push(size - 1);
    let blocks: Vec<Vec<u8>> = places
        .iter()
        .map(|at| rng.bytes((size - at).min(5000) as usize))
        .collect();
    for (at, block) in places.iter().zip(&blocks).rev() {
        file.write_all_at(block, *at)?;
    }
    file.sync_all()?;
    drop(file);
    mount.remount()?;
    let file = File::open(&path)?;
    ensure_eq!(file.metadata()?.len(), size, "size");
    let mut found = Vec::new();
    for (at, block) in places.iter().zip(&blocks) {
        found.resize(block.len(), 0);
        file.read_exact_at(&mut found, *at)?;
        ensure!(found == *block, "data at {at}, seed {seed}");
        if *at >= 4096 {
            let mut hole = [1; 100];
            file.read_exact_at(&mut hole, at - 100)?;
            ensure!(hole == [0; 100], "a hole before {at}, seed {seed}");
        }
    }
    // Holes are skipped, and not read.
    let mut at = 0;
    let mut runs = 0;
    while let Ok(data) = seek(&file, SeekFrom::Data(at)) {
        ensure!(
            places.iter().any(|place| place.abs_diff(data) < 1 << 20),
            "data at {data}, where nothing was written, seed {seed}"
        );
        at = seek(&file, SeekFrom::Hole(data))?;
        runs += 1;
    }
    ensure!(runs >= 64, "only {runs} runs of data, seed {seed}");
    let stored = file.metadata()?;
    let blocks = std::os::linux::fs::MetadataExt::st_blocks(&stored);
    ensure!(
        blocks * 512 < 16 << 20,
        "{blocks} blocks for a file of holes"
    );
    drop(file);
    note(format!("{} GiB of holes, {runs} runs of data", size >> 30));
    tally("a file of holes: runs of data", runs, runs, 0);
    mount.unmount()?;
    mount.fsck_is_clean()
}

/// Handles that are all open at once, each with unwritten data.
pub(crate) fn handles(case: &Case) -> Outcome {
    let count: u64 = choose(1000, 10_000);
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    ensure!(hard > count + 100, "no more than {hard} files may be open");
    let mut mount = case.mount("fs", &OPTIONS)?;
    let record = |number: u64| contents(number)[..12].to_vec();
    // Ten handles for each file.
    let path = |number: u64| format!("shared-{}", number / 10);
    let mut open = Vec::new();
    for number in 0..count {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(mount.path().join(path(number)))?;
        open.push(file);
    }
    for (number, file) in (0..).zip(&open) {
        file.write_all_at(&record(number), number % 10 * 4096)?;
    }
    // Each sees what another one has written.
    for (number, file) in (0..count).zip(&open) {
        let other = number / 10 * 10 + (number + 3) % 10;
        let mut found = [0; 12];
        file.read_exact_at(&mut found, other % 10 * 4096)?;
        ensure!(found[..] == record(other)[..], "handle {number}");
    }
    drop(open);
    mount.remount()?;
    for number in 0..count {
        let mut found = [0; 12];
        let file = File::open(mount.path().join(path(number)))?;
        file.read_exact_at(&mut found, number % 10 * 4096)?;
        ensure!(found[..] == record(number)[..], "record {number}");
    }
    tally("open handles", count, count, 0);
    mount.unmount()?;
    mount.fsck_is_clean()
}

/// Every byte but `/` and NUL: alone, in pairs, and in names as long as they may be.
fn of_all_bytes() -> BTreeSet<OsString> {
    let usable: Vec<u8> = (1..=u8::MAX).filter(|byte| *byte != b'/').collect();
    let mut all = BTreeSet::new();
    // All pairs are 64,516 names.
    let step = choose(31, 1);
    for &first in &usable {
        let pairs = usable
            .iter()
            .step_by(step)
            .map(|&second| vec![first, second]);
        let alone = [vec![first], vec![first; 255]];
        all.extend(pairs.chain(alone).map(OsString::from_vec));
    }
    all.remove(OsStr::new("."));
    all.remove(OsStr::new(".."));
    all
}

/// Files and directories by such names, found by listing and by looking up.
pub(crate) fn byte_names(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &OPTIONS)?;
    let top = mount.path().join("top");
    fs::create_dir(&top)?;
    let all = of_all_bytes();
    for name in &all {
        if name.len() == 1 {
            fs::create_dir(top.join(name))?;
        } else {
            fs::write(top.join(name), name.as_bytes())?;
        }
    }
    mount.remount()?;
    ensure!(names(&top)? == all, "names after a remount");
    for name in all.iter().filter(|name| name.len() > 1) {
        ensure_eq!(fs::read(top.join(name))?, name.as_bytes(), "{name:?}");
    }
    for name in &all {
        if name.len() == 1 {
            fs::remove_dir(top.join(name))?;
        } else {
            fs::remove_file(top.join(name))?;
        }
    }
    ensure_eq!(names(&top)?.len(), 0, "left after removal");
    let count = all.len() as u64;
    tally("names of all bytes", count, count, 0);
    mount.unmount()?;
    mount.fsck_is_clean()
}
