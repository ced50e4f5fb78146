//! kill -9 of the daemon at random moments.
//!
//! Writers work on the mount and note what has been acknowledged; the daemon is killed meanwhile;
//! then the store must be clean, everything that was acknowledged must be there byte for byte, and
//! everything else must be an older or newer version of itself. The same store lives through many
//! rounds.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use shale_tests::{
    Case, Context, Fs, Outcome, Rng, Suite, Writer, ensure, note, rounds, seed, tally,
};

const WRITERS: u64 = 4;
/// Rounds per store, and stores per test.
const ROUNDS: u64 = 26;
const STORES: u64 = 2;

fn main() -> ExitCode {
    Suite::new("crash")
        .limit(Duration::from_secs(600))
        .test("killed_at_random_moments", |case| {
            campaign(case, "kill -9: rounds", 1, &[])
        })
        .test("killed_with_small_chunks_and_little_memory", |case| {
            campaign(
                case,
                "kill -9, 64 KiB chunks, 16 MiB: rounds",
                2,
                &["--chunk", "64K", "--memory", "16M"],
            )
        })
        .test("killed_with_mapped_packs", |case| {
            campaign(
                case,
                "kill -9, mapped packs: rounds",
                3,
                &["--backing", "pmem"],
            )
        })
        .run()
}

fn campaign(case: &Case, name: &str, salt: u64, options: &[&str]) -> Outcome {
    let seed = seed()?;
    let mut rng = Rng::new(seed ^ salt);
    let (mut lived, mut checked, mut acknowledged) = (0, 0, 0);
    for store in rounds(STORES) {
        let mut fs = if shale_tests::on_ext4() {
            Fs::Ext4(case.loop_fs(&format!("fs{store}"), shale_tests::LoopFs::Ext4, 4 << 30)?)
        } else {
            Fs::Shale(case.mount(&format!("fs{store}"), options)?)
        };
        let mut writers = Writer::several(fs.path(), WRITERS, &mut rng)?;
        for round in 0..ROUNDS {
            writers = one_round(&mut fs, writers, &mut rng)
                .doing(format!("store {store}, round {round}, seed {seed}"))?;
            for writer in &mut writers {
                checked += writer
                    .verify()
                    .doing(format!("store {store}, after round {round}, seed {seed}"))?;
                acknowledged += writer.take_acknowledged();
            }
            lived += 1;
        }
        // Everything recovered last is still there after a clean unmount.
        fs.refresh()?;
        for writer in &mut writers {
            writer
                .verify()
                .doing(format!("store {store}, at the end, seed {seed}"))?;
        }
        fs.finish()?;
    }
    note(format!(
        "{lived} rounds, {acknowledged} acknowledged fsyncs, {checked} files checked"
    ));
    ensure!(
        acknowledged > lived,
        "only {acknowledged} fsyncs in {lived} rounds: nothing was tested"
    );
    ensure!(
        checked > lived,
        "only {checked} files in {lived} rounds: nothing was tested"
    );
    tally(name, lived, lived, 0);
    Ok(())
}

/// Lets the writers work, kills the daemon, checks the store and mounts it again.
fn one_round(fs: &mut Fs, writers: Vec<Writer>, rng: &mut Rng) -> Outcome<Vec<Writer>> {
    let stop = AtomicBool::new(false);
    // Early as well as late: the first moments after a mount are moments, too.
    let delay = if rng.one_in(4) {
        rng.below(60)
    } else {
        rng.between(60, 900)
    };
    let writers = std::thread::scope(|scope| -> Outcome<Vec<Writer>> {
        let running: Vec<_> = writers
            .into_iter()
            .map(|mut writer| {
                let stop = &stop;
                scope.spawn(move || {
                    let result = writer.work(stop);
                    (writer, result)
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(delay));
        stop.store(true, Ordering::SeqCst);
        let killed = match fs.shale() {
            Some(mount) => mount.kill9(),
            None => Ok(()),
        };
        let mut writers = Vec::new();
        for handle in running {
            let (mut writer, result) = handle.join().expect("a writer panicked");
            result?;
            writer.names_are_kept();
            writers.push(writer);
        }
        killed?;
        Ok(writers)
    })?;
    if let Some(mount) = fs.shale() {
        mount.detach();
        mount.fsck_is_clean()?;
        // Recovery is interrupted as well, now and then.
        if rng.one_in(5) {
            let mut child = mount.start_foreground()?;
            std::thread::sleep(Duration::from_millis(rng.below(80)));
            child.kill()?;
            child.wait()?;
            mount.detach();
            mount.fsck_is_clean()?;
        }
        mount.start()?;
    }
    Ok(writers)
}
