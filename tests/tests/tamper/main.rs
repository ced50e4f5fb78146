//! Bytes of every class on disk are flipped, zeroed, cut off, exchanged, replaced by those of
//! another file or store, and by older ones. Nothing wrong is ever served, nothing panics, exactly
//! the lost files are named, and the rest stays.

mod classes;
mod harm;
mod holes;
mod interrupted;
mod specimen;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use shale_backing::faults::copy_dir;
use shale_store::fsck::{FsckOptions, fsck};
use shale_tests::{Case, Failure, Need, Outcome, Rng, Suite, ensure, note, rounds, seed, tally};

use classes::{Class, classes};
use harm::{Harm, inflict};
use specimen::{Contents, Found, Specimen};

fn main() -> ExitCode {
    Suite::new("tamper")
        .need(Need::Shale)
        .limit(Duration::from_secs(600))
        .test("with_any_class_of_bytes", with_any_class_of_bytes)
        .test(
            "a_rebuild_from_a_damaged_catalog_keeps_what_is_in_it",
            spoiled_catalog,
        )
        .test(
            "a_rebuild_ignores_the_catalog_of_another_store",
            foreign_catalog,
        )
        .test(
            "a_rebuild_from_a_catalog_with_a_hole_hides_nothing",
            holes::anywhere,
        )
        .test(
            "a_repair_that_is_cut_short_is_done_again",
            interrupted::repair,
        )
        .test(
            "a_rebuild_that_is_cut_short_is_done_again",
            interrupted::rebuild,
        )
        .run()
}

const REBUILD: FsckOptions = FsckOptions {
    repair: false,
    rebuild: true,
};

/// Panics of any thread: those of background threads are caught, but must not happen either.
static PANICS: AtomicU64 = AtomicU64::new(0);

fn with_any_class_of_bytes(case: &Case) -> Outcome {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::SeqCst);
        report(info);
    }));
    let seed = seed()?;
    let work = case.work();
    let specimen = Specimen::new(&work.join("made"))?;
    let classes = classes(specimen.now())?;
    for class in Class::ALL {
        ensure!(classes.contains_key(&class), "there is no {class:?}");
    }
    let harmed = work.join("harmed");
    let mut outcomes: BTreeMap<(Class, Harm), [u64; 4]> = BTreeMap::new();
    let mut injuries = 0;
    for round in rounds(3) {
        for (&class, places) in &classes {
            for harm in Harm::ALL {
                let mut rng = Rng::new(seed ^ round << 40 ^ injuries);
                if harmed.exists() {
                    fs::remove_dir_all(&harmed)?;
                }
                copy_dir(specimen.now(), &harmed)?;
                let Some(done) = inflict(harm, class, places, &specimen, &harmed, &mut rng)? else {
                    continue;
                };
                if class == Class::Snapshot && round % 2 == 0 {
                    // It is not read while there is a base.
                    fs::remove_dir_all(harmed.join("index/sled"))?;
                    fs::remove_file(harmed.join("index/checkpoint"))?;
                }
                injuries += 1;
                let what = format!("{harm:?} in {class:?}: {done}, round {round}");
                let verdict = examine(&harmed, specimen.contents(), class, harm)
                    .map_err(|e| Failure::new(format!("{what}: {e}")))?;
                let panics = PANICS.load(Ordering::SeqCst);
                ensure!(panics == 0, "{what}: a thread panicked");
                outcomes.entry((class, harm)).or_default()[verdict as usize] += 1;
            }
        }
    }
    for ((class, harm), [unseen, noticed, reported, refused]) in &outcomes {
        note(format!(
            "{class:?}, {harm:?}: {unseen} without effect, {noticed} noticed, {reported} reported, {refused} refused"
        ));
    }
    ensure!(
        injuries > 150,
        "only {injuries} injuries: nothing was tested"
    );
    tally("bytes tampered with", injuries, injuries, 0);
    Ok(())
}

/// The index is lost, and the catalog has damaged bytes somewhere.
fn spoiled_catalog(case: &Case) -> Outcome {
    let specimen = Specimen::new(&case.work().join("made"))?;
    let catalog = classes(specimen.now())?
        .remove(&Class::Catalog)
        .unwrap_or_default();
    let noise = Rng::new(7).bytes(100);
    for place in catalog {
        let harmed = case.work().join("harmed");
        if harmed.exists() {
            fs::remove_dir_all(&harmed)?;
        }
        copy_dir(specimen.now(), &harmed)?;
        fs::remove_dir_all(harmed.join("index"))?;
        let path = harmed.join(&place.file);
        let bytes = fs::read(&path)?;
        fs::write(&path, [&bytes[..], &noise].concat())?;
        let rebuilt = fsck(&harmed, &REBUILD, &mut |_, _| {});
        ensure!(rebuilt.is_ok(), "it cannot be rebuilt");
        let found = specimen::read(&harmed, specimen.contents())?;
        let found = found.ok_or_else(|| Failure::new("it does not open"))?;
        for (name, found) in found {
            ensure!(found == Found::Same, "{name} is {found:?}");
        }
        let report = fsck(&harmed, &FsckOptions::default(), &mut |_, _| {});
        let problems = report.map(|r| r.problems).unwrap_or_default();
        ensure!(problems.is_empty(), "{problems:?}");
    }
    Ok(())
}

/// The index is lost, and the catalog has been replaced by that of another store.
fn foreign_catalog(case: &Case) -> Outcome {
    let specimen = Specimen::new(&case.work().join("made"))?;
    let harmed = case.work().join("harmed");
    copy_dir(specimen.now(), &harmed)?;
    fs::remove_dir_all(harmed.join("index"))?;
    fs::remove_dir_all(harmed.join("packs/catalog"))?;
    copy_dir(
        &specimen.stranger().join("packs/catalog"),
        &harmed.join("packs/catalog"),
    )?;
    let report = fsck(&harmed, &REBUILD, &mut |_, _| {});
    let report = report.map_err(|e| Failure::new(format!("it cannot be rebuilt: {e}")))?;
    ensure!(
        report
            .problems
            .iter()
            .any(|problem| problem.what.contains("belongs to another store")),
        "{:?}",
        report.problems
    );
    let names = specimen::names(&harmed)?;
    ensure!(names == ["lost+found"], "{names:?}");
    Ok(())
}

#[derive(Clone, Copy, Debug)]
enum Verdict {
    /// Everything is as it was, and fsck finds nothing wrong: what was harmed is not used, or is
    /// rewritten.
    Unseen,
    /// Everything is as it was, but fsck says that something is wrong.
    Noticed,
    /// Something is missing or cannot be read, and fsck says so.
    Reported,
    /// The store does not open.
    Refused,
}

/// Checks and opens a store that something was done to.
fn examine(store: &Path, contents: &Contents, class: Class, harm: Harm) -> Outcome<Verdict> {
    let report = fsck(store, &FsckOptions::default(), &mut |_, _| {});
    let clean = report.as_ref().is_ok_and(|r| r.problems.is_empty());
    let named: BTreeSet<String> = report
        .iter()
        .flat_map(|r| &r.problems)
        .filter_map(|problem| problem.file.as_ref())
        .map(|file| file.trim_start_matches('/').to_owned())
        .collect();
    if class.is_mendable() {
        ensure!(!clean, "fsck does not notice it");
        mend(store, contents)?;
    }
    let Some(found) = specimen::read(store, contents)? else {
        ensure!(!clean, "the store does not open, but fsck finds it clean");
        rebuild(store, contents, class)?;
        return Ok(Verdict::Refused);
    };
    for (name, found) in &found {
        ensure!(*found != Found::Different, "{name} has other contents");
    }
    let bad: Vec<&String> = found
        .iter()
        .filter(|(_, found)| **found != Found::Same)
        .map(|(name, _)| name)
        .collect();
    for name in &named {
        ensure!(
            bad.contains(&name),
            "fsck accuses {name}, which can be read: {:?}",
            report.map(|r| r.problems)
        );
    }
    if bad.is_empty() && clean {
        return Ok(Verdict::Unseen);
    }
    if bad.is_empty() {
        return Ok(Verdict::Noticed);
    }
    ensure!(
        !class.is_mendable(),
        "{bad:?} suffer from damage to {class:?}"
    );
    ensure!(!clean, "{bad:?} cannot be read, but fsck finds nothing");
    for name in &bad {
        let gone = found[*name] == Found::Missing;
        ensure!(gone || named.contains(*name), "fsck does not name {name}");
    }
    if class.is_of_one_file() && harm.stays_in_place() {
        ensure!(bad.len() == 1, "{bad:?} suffer from damage to one");
    }
    Ok(Verdict::Reported)
}

/// `fsck --repair` repairs what can be derived from the rest, for good and without a loss.
fn mend(store: &Path, contents: &Contents) -> Outcome {
    let mended = store.with_extension("mended");
    if mended.exists() {
        fs::remove_dir_all(&mended)?;
    }
    copy_dir(store, &mended)?;
    let options = FsckOptions {
        repair: true,
        ..FsckOptions::default()
    };
    let problems = |options: &FsckOptions| {
        fsck(&mended, options, &mut |_, _| {})
            .map(|report| report.problems)
            .map_err(|e| Failure::new(format!("it cannot be checked: {e}")))
    };
    let repaired = problems(&options)?;
    let left = repaired.iter().find(|problem| !problem.repaired);
    ensure!(left.is_none(), "{left:?} is not repaired");
    let left = problems(&FsckOptions::default())?;
    ensure!(left.is_empty(), "after a repair: {left:?}");
    // The repaired parts alone are enough.
    fs::remove_dir_all(mended.join("index"))?;
    rebuild(&mended, contents, Class::Journal)
}

/// What `fsck --rebuild` brings back of a store that does not open is right, and it is everything
/// if packs and catalog are whole.
fn rebuild(store: &Path, contents: &Contents, class: Class) -> Outcome {
    let rebuilt = fsck(store, &REBUILD, &mut |_, _| {});
    if let Err(e) = rebuilt {
        ensure!(!class.is_spare(), "it cannot be rebuilt: {e}");
        return Ok(());
    }
    let found = specimen::read(store, contents)?
        .ok_or_else(|| Failure::new("the store does not open after a rebuild"))?;
    for (name, found) in &found {
        ensure!(
            *found != Found::Different,
            "{name} was rebuilt with other contents"
        );
        ensure!(
            *found == Found::Same || !class.is_spare(),
            "{name} was not rebuilt"
        );
    }
    Ok(())
}
