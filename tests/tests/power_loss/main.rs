//! A store on a disk that loses power after every single step.
//!
//! The same life is repeated on a simulated disk, each time with the power cut one step later; then
//! with a single failing step in each. Unsynced data is then dropped, kept, or kept sector by
//! sector and name by name; fsck must find no problem, and every acknowledged fsync must be there.

mod life;
mod sizes;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use shale_backing::faults::{FaultDisk, Left, Step, Tear};
use shale_index::ROOT;
use shale_store::Store;
use shale_store::fsck::{FsckOptions, fsck};
use shale_tests::{
    Case, Failure, Need, Outcome, Rng, Suite, ensure, is_long, note, rounds, seed, small_chunks,
    store_options, tally,
};

use life::{Life, Witness};

fn main() -> ExitCode {
    Suite::new("power_loss")
        .need(Need::Shale)
        .limit(Duration::from_secs(600))
        .test("at_every_step", |case| {
            at_steps(case, &Life::short(), u64::MAX)
        })
        .test("at_every_step_of_a_fold", |case| {
            at_steps(case, &Life::folding(), 100)
        })
        .test("at_random_in_long_lives", at_random_in_long_lives)
        .test("after_any_single_failure", after_any_single_failure)
        .test(
            "a_sync_that_fails_says_why_and_works_again_later",
            a_sync_that_fails_says_why,
        )
        .test(
            "a_truncation_is_not_undone_by_an_older_commit",
            sizes::a_truncation_is_not_undone,
        )
        .test(
            "files_synced_beside_a_lost_pack_survive",
            sizes::files_synced_beside_a_lost_pack_survive,
        )
        .run()
}

/// The places of the disk and of the state found after it.
fn fresh(dir: &Path) -> Outcome {
    if dir.exists() {
        std::fs::remove_dir_all(dir)?;
    }
    std::fs::create_dir_all(dir)?;
    Ok(())
}

/// Lives on a disk that loses power at a step, and checks what is found.
fn lose_power(work: &Path, life: &Life, step: u64, lefts: &[Left]) -> Outcome<u64> {
    let live = work.join("live");
    fresh(&live)?;
    let disk = FaultDisk::new(&live)?;
    disk.cut_power_at(step);
    if step % 2 == 1 {
        disk.tear(Tear::Half);
    }
    let witness = life.live(&disk);
    if disk.changes() < step
        && let Some(failure) = witness.failure()
    {
        return Err(Failure::new(format!("with the power on: {failure}")));
    }
    for &left in lefts {
        let after = work.join("after");
        fresh(&after)?;
        disk.after_power_loss(&after, left)?;
        check(&after, &witness)
            .map_err(|e| Failure::new(format!("power lost at step {step}, left {left:?}: {e}")))?;
    }
    Ok(disk.changes())
}

fn check(store: &Path, witness: &Witness) -> Outcome {
    if !store.join("superblock").exists() {
        ensure!(
            !witness.was_opened(),
            "the superblock of an opened store is gone"
        );
        return witness.check(store);
    }
    let report = fsck(store, &FsckOptions::default(), &mut |_, _| {})
        .map_err(|e| Failure::new(format!("fsck: {e}")))?;
    ensure!(report.problems.is_empty(), "fsck: {:?}", report.problems);
    witness.check(store)
}

/// The power fails at each of the last steps of a life.
fn at_steps(case: &Case, life: &Life, last: u64) -> Outcome {
    let work = case.work();
    let whole = lose_power(work, life, u64::MAX, &[Left::Nothing])?;
    ensure!(
        whole > 100,
        "the life is too short to prove anything: {whole}"
    );
    // How many steps there are differs a little from life to life: threads take turns.
    let first = whole.saturating_sub(last);
    for step in first..whole + 10 {
        let lefts = [
            Left::Nothing,
            Left::Some(2 * step),
            Left::Everything,
            Left::Some(2 * step + 1),
        ];
        let some = &lefts[(step % 4) as usize..][..1];
        lose_power(work, life, step, if is_long() { &lefts } else { some })?;
    }
    let steps = whole + 10 - first;
    note(format!("power lost at each of {steps} steps"));
    let outcomes = if is_long() { 4 * steps } else { steps };
    tally("power lost, each step in turn", outcomes, outcomes, 0);
    Ok(())
}

fn at_random_in_long_lives(case: &Case) -> Outcome {
    let seed = seed()?;
    let mut lives = 0;
    for round in rounds(20) {
        let mut rng = Rng::new(seed ^ round << 32);
        let life = Life::random(rng.next_u64(), 150);
        let whole = 800;
        let step = rng.next_u64() % whole;
        let lefts = [Left::Nothing, Left::Some(rng.next_u64()), Left::Everything];
        lose_power(case.work(), &life, step, &lefts)
            .map_err(|e| Failure::new(format!("round {round}: {e}")))?;
        lives += 1;
    }
    note(format!("power lost in {lives} long lives"));
    tally("power lost, long lives", 3 * lives, 3 * lives, 0);
    Ok(())
}

/// A store survives a step that fails once: the device works again, so in the end everything
/// works, and everything that was not refused is there.
fn after_any_single_failure(case: &Case) -> Outcome {
    let life = Life::short();
    let live = case.work().join("live");
    let after = case.work().join("after");
    let mut failures = 0;
    for reads in [false, true] {
        let mut bad = 0;
        loop {
            fresh(&live)?;
            let disk = FaultDisk::new(&live)?;
            let errno = [libc::EIO, libc::ENOSPC, libc::EDQUOT][(bad % 3) as usize];
            if bad % 2 == 1 {
                disk.tear(Tear::Half);
            }
            disk.rule(move |step, _, at| {
                (step.is_change() != reads && at == bad)
                    .then(|| std::io::Error::from_raw_os_error(errno))
            });
            let witness = life.live(&disk);
            let steps = if reads { disk.reads() } else { disk.changes() };
            if steps <= bad {
                break;
            }
            let what = format!("{} {bad} failed", if reads { "read" } else { "change" });
            let before_the_end = if reads { witness.end.1 } else { witness.end.0 };
            ensure!(
                bad >= before_the_end || witness.ended.is_ok(),
                "{what}, and in the end: {:?}",
                witness.ended
            );
            fresh(&after)?;
            disk.after_power_loss(&after, Left::Some(bad))?;
            check(&after, &witness)
                .and_then(|()| check(&live, &witness))
                .map_err(|e| Failure::new(format!("{what}: {e}")))?;
            failures += 1;
            bad += 1;
        }
    }
    note(format!("{failures} steps failed, one in each life"));
    tally("single failing steps", failures, failures, 0);
    Ok(())
}

/// A device that cannot sync packs: the error reaches the sync, the data stays and is written
/// when the device works again.
fn a_sync_that_fails_says_why(case: &Case) -> Outcome {
    let live = case.work().join("live");
    for errno in [libc::EIO, libc::ENOSPC, libc::EDQUOT] {
        fresh(&live)?;
        let disk = FaultDisk::new(&live)?;
        let refused = |e: shale_store::Error| Failure::new(e.to_string());
        let store = Store::open_on(disk.backing(), &store_options(1 << 20)).map_err(refused)?;
        let names = store.committed();
        let created = names.create(ROOT, b"file", &small_chunks());
        let ino = created.map_err(|e| Failure::new(e.to_string()))?.ino;
        let file = store.file(ino).map_err(refused)?;
        store.write(&file, 0, b"precious").map_err(refused)?;
        disk.rule(move |step, path, _| {
            let is_pack = path.extension().is_some_and(|e| e == "pack");
            (step == Step::Sync && is_pack).then(|| std::io::Error::from_raw_os_error(errno))
        });
        let answer = store
            .sync(&file)
            .map_err(|e| shale_fs::Error::from(e).errno());
        ensure!(answer == Err(errno), "{answer:?} instead of errno {errno}");
        disk.heal();
        store.sync(&file).map_err(refused)?;
        let mut found = Vec::new();
        store.read(&file, 0, 100, &mut found).map_err(refused)?;
        ensure!(found == b"precious", "{found:?}");
        store.close(file);
        store.shut_down().map_err(refused)?;
    }
    Ok(())
}
