//! SIGTERM: the daemon shuts down cleanly, and waits for programs that use files.

use std::fs::{self, File};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use shale_tests::{
    Case, Context, Mount, Outcome, Rng, Served, Writer, ensure, ensure_eq, note, rounds, seed,
    shale, tally,
};

const WRITERS: u64 = 4;
const ROUNDS: u64 = 5;
const PATIENCE: Duration = Duration::from_secs(120);

fn serve(mount: &Mount) -> Outcome<Served> {
    let mut served = mount.serve(shale().env("MALLOC_ARENA_MAX", "2"))?;
    ensure!(
        served.is_running()?,
        "the daemon has ended: {}",
        mount.log_tail()
    );
    Ok(served)
}

fn ends_in_order(mount: &Mount, served: &mut Served) -> Outcome {
    let status = served
        .end(PATIENCE)?
        .doing("the daemon did not end after SIGTERM")?;
    ensure!(
        status.success(),
        "the daemon ended with {status}\n{}",
        mount.log_tail()
    );
    ensure!(!mount.is_mounted(), "still mounted after SIGTERM");
    Ok(())
}

/// Everything that had returned before the end is there afterwards, synced or not.
pub(crate) fn under_load(case: &Case) -> Outcome {
    let seed = seed()?;
    let mut rng = Rng::new(seed);
    let mut mount = case.mount("fs", &["--memory", "64M", "-o", "settle=1"])?;
    let mut writers = Writer::several(mount.path(), WRITERS, &mut rng)?;
    mount.unmount()?;
    let (mut ended, mut checked) = (0, 0);
    for round in rounds(ROUNDS) {
        let mut served = serve(&mount)?;
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| -> Outcome {
            let running: Vec<_> = writers
                .iter_mut()
                .map(|writer| scope.spawn(|| writer.work(&stop)))
                .collect();
            std::thread::sleep(Duration::from_millis(rng.between(100, 800)));
            // From here on the writers may find the mount gone.
            stop.store(true, Ordering::SeqCst);
            served.signal(Signal::SIGTERM)?;
            for handle in running {
                handle.join().expect("a writer panicked")?;
            }
            Ok(())
        })
        .doing(format!("round {round}, seed {seed}"))?;
        ends_in_order(&mount, &mut served)?;
        mount.fsck_is_clean()?;
        mount.start()?;
        for writer in &mut writers {
            writer.everything_is_kept();
            checked += writer
                .verify()
                .doing(format!("after round {round}, seed {seed}"))?;
        }
        mount.unmount()?;
        ended += 1;
    }
    ensure!(
        checked > ended * 4,
        "only {checked} files: nothing was tested"
    );
    note(format!("{ended} ends, {checked} files checked"));
    tally("SIGTERM under load: ends", ended, ended, 0);
    Ok(())
}

/// New opens fail; programs with open files continue, and lose nothing.
pub(crate) fn waits_for_open_files(case: &Case) -> Outcome {
    let mut mount = case.mount("fs", &[])?;
    mount.unmount()?;
    let mut served = serve(&mount)?;
    let mut rng = Rng::new(3);
    let (first, second) = (rng.bytes(3 << 20), rng.bytes(2 << 20));
    fs::write(mount.path().join("closed"), &first)?;
    let mut open = File::create_new(mount.path().join("open"))?;
    open.write_all(&first)?;

    // A plain unmount is refused, and changes nothing.
    shale()
        .arg("unmount")
        .arg(mount.path())
        .run()?
        .status_is(75)?;
    ensure_eq!(fs::read(mount.path().join("closed"))?, first, "while busy");

    served.signal(Signal::SIGTERM)?;
    let deadline = Instant::now() + PATIENCE;
    while mount.is_mounted() {
        ensure!(Instant::now() < deadline, "in sight 120 s after SIGTERM");
        std::thread::sleep(Duration::from_millis(5));
    }
    ensure!(served.is_running()?, "ended though a file is open");
    open.write_all(&second)?;
    open.sync_all()?;
    open.write_all(&first)?;
    drop(open);
    ends_in_order(&mount, &mut served)?;
    mount.fsck_is_clean()?;
    mount.start()?;
    let whole = [&first[..], &second, &first].concat();
    ensure!(
        fs::read(mount.path().join("open"))? == whole,
        "what was written to the open file is missing"
    );
    ensure!(
        fs::read(mount.path().join("closed"))? == first,
        "the closed file has changed"
    );
    mount.unmount()?;
    mount.fsck_is_clean()
}
