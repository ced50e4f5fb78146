//! Repairs that end early: at every single step, by a kill, a loss of power, or lack of space.
//!
//! Whatever the step, nothing is lost by it: the store opens as before or says why not, and the
//! same repair, run again, repairs everything.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use shale_backing::faults::{FaultDisk, Left, Step, Tear, copy_dir};
use shale_store::fsck::{FsckOptions, FsckReport, fsck, fsck_on};
use shale_tests::{Case, Failure, Outcome, ensure, is_long, note, tally};

use crate::classes::{Class, classes};
use crate::specimen::{self, Contents, Found, Specimen};

const REPAIR: FsckOptions = FsckOptions {
    repair: true,
    rebuild: false,
};

/// The kind of end.
#[derive(Clone, Copy, Debug)]
enum End {
    /// The process is killed.
    Death,
    /// Power is lost.
    Power(Left),
    /// From then on nothing can be written, but names can be changed.
    NoSpace,
    /// One step fails.
    Once,
}

pub(crate) fn repair(case: &Case) -> Outcome {
    let specimen = Specimen::new(&case.work().join("made"))?;
    let mut harmed = Harmed::new(case, &specimen)?;
    harmed.spoil(Class::PackFooter, 4)?;
    harmed.spoil(Class::Catalog, 300)?;
    harmed.interrupt("directories and catalog", REPAIR)?;
    let mut harmed = Harmed::new(case, &specimen)?;
    fs::remove_dir_all(harmed.path.join("packs/catalog"))?;
    harmed.interrupt("no catalog", REPAIR)
}

pub(crate) fn rebuild(case: &Case) -> Outcome {
    let specimen = Specimen::new(&case.work().join("made"))?;
    let mut harmed = Harmed::new(case, &specimen)?;
    fs::remove_dir_all(harmed.path.join("index"))?;
    harmed.interrupt("no index", super::REBUILD)?;
    let mut harmed = Harmed::new(case, &specimen)?;
    harmed.spoil(Class::Superblock, 8)?;
    harmed.spoil(Class::Snapshot, 30)?;
    fs::remove_dir_all(harmed.path.join("index/sled"))?;
    fs::remove_file(harmed.path.join("index/checkpoint"))?;
    harmed.spoil(Class::PackFooter, 4)?;
    harmed.interrupt(
        "a damaged superblock, index and directories",
        super::REBUILD,
    )
}

/// A store that needs a repair.
struct Harmed<'a> {
    path: PathBuf,
    work: PathBuf,
    contents: &'a Contents,
}

impl<'a> Harmed<'a> {
    fn new(case: &Case, specimen: &'a Specimen) -> Outcome<Self> {
        let path = case.work().join("harmed");
        fresh(&path)?;
        copy_dir(specimen.now(), &path)?;
        Ok(Self {
            path,
            work: case.work().to_owned(),
            contents: specimen.contents(),
        })
    }

    /// Flips a byte in every piece of a class.
    fn spoil(&mut self, class: Class, at: usize) -> Outcome {
        let places = classes(&self.path)?.remove(&class).unwrap_or_default();
        ensure!(!places.is_empty(), "there is no {class:?}");
        for place in places {
            let path = self.path.join(&place.file);
            let mut bytes = fs::read(&path)?;
            let at = place.range.start + at.min(place.range.len() - 1);
            bytes[at] ^= 0xff;
            fs::write(&path, bytes)?;
        }
        Ok(())
    }

    /// Makes a repair end early at every step and in every way.
    fn interrupt(&mut self, what: &str, options: FsckOptions) -> Outcome {
        let mut ends = 0;
        let mut step = 0;
        loop {
            let all = [
                End::Power(Left::Nothing),
                End::NoSpace,
                End::Death,
                End::Power(Left::Some(step)),
                End::Once,
            ];
            // One after the other, all of them only when there is time.
            let some = [all[step as usize % all.len()]];
            let ways = if is_long() { &all[..] } else { &some[..] };
            for &end in ways {
                let reached = self
                    .end_early(options, step, end)
                    .map_err(|e| Failure::new(format!("{what}: {end:?} at step {step}: {e}")))?;
                if !reached {
                    ensure!(step > 5, "{what}: only {step} steps");
                    note(format!("{what}: cut short at {step} steps, {ends} times"));
                    tally("repairs cut short", ends, ends, 0);
                    return Ok(());
                }
                ends += 1;
            }
            step += 1;
        }
    }

    /// Whether the repair got that far.
    fn end_early(&self, options: FsckOptions, step: u64, end: End) -> Outcome<bool> {
        let live = self.work.join("live");
        fresh(&live)?;
        copy_dir(&self.path, &live)?;
        let disk = FaultDisk::new(&live)?;
        if step % 2 == 1 {
            disk.tear(Tear::Half);
        }
        let error = io::Error::from_raw_os_error;
        match end {
            End::Death | End::Power(_) => disk.cut_power_at(step),
            End::NoSpace => disk.rule(move |kind, _, at| {
                let needs = matches!(kind, Step::Create | Step::CreateDir | Step::Write);
                (needs && at >= step).then(|| error(libc::ENOSPC))
            }),
            End::Once => disk.rule(move |kind, _, at| {
                (kind.is_change() && at == step).then(|| error(libc::EIO))
            }),
        }
        let ended = fsck_on(&disk.backing(), &options, &mut |_, _| {});
        if disk.changes() <= step {
            let whole = ended.map_err(|e| Failure::new(format!("not cut short: {e}")))?;
            mended(&live, &whole, self.contents)?;
            return Ok(false);
        }
        let found = match end {
            End::Power(left) => {
                let after = self.work.join("after");
                fresh(&after)?;
                disk.after_power_loss(&after, left)?;
                after
            }
            _ => live,
        };
        // The store may be mounted before it is repaired again.
        let mounted = self.work.join("mounted");
        fresh(&mounted)?;
        copy_dir(&found, &mounted)?;
        if let Some(read) = specimen::read(&mounted, self.contents)? {
            all_the_same(&read)?;
        } else {
            ensure!(options.rebuild, "it does not open");
        }
        let again = fsck(&found, &options, &mut |_, _| {});
        let again = again.map_err(|e| Failure::new(format!("once more: {e}")))?;
        mended(&found, &again, self.contents)?;
        Ok(true)
    }
}

fn fresh(dir: &Path) -> Outcome {
    if dir.exists() {
        fs::remove_dir_all(dir)?;
    }
    Ok(())
}

fn all_the_same(found: &std::collections::BTreeMap<String, Found>) -> Outcome {
    for (name, found) in found {
        ensure!(*found == Found::Same, "{name} is {found:?}");
    }
    Ok(())
}

/// Nothing is wrong any more, and everything is there.
fn mended(store: &Path, report: &FsckReport, contents: &Contents) -> Outcome {
    let left = report.problems.iter().find(|problem| !problem.repaired);
    ensure!(left.is_none(), "{left:?} is left");
    let check = fsck(store, &FsckOptions::default(), &mut |_, _| {});
    let check = check.map_err(|e| Failure::new(format!("a check: {e}")))?;
    ensure!(check.problems.is_empty(), "then {:?}", check.problems);
    let read = specimen::read(store, contents)?.ok_or_else(|| Failure::new("it does not open"))?;
    all_the_same(&read)
}
