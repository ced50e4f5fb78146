//! The daemon is killed because its cgroup has too little memory for what it is told to use.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use nix::sys::signal::Signal;
use shale_tests::{
    Case, Context, MemoryGroup, Need, Outcome, Rng, Suite, Writer, binary, ensure, is_dead, note,
    rounds, seed, tally,
};

const MIB: u64 = 1 << 20;
/// Enough for what is kept ready from the start, and less than what `--memory` lets it keep.
const LIMIT: u64 = 160 * MIB;
const WRITERS: u64 = 3;
const ROUNDS: u64 = 3;
const PATIENCE: Duration = Duration::from_secs(120);

fn main() -> ExitCode {
    Suite::new("oom")
        .need(Need::Shale)
        .need(Need::MemoryCgroup)
        .limit(Duration::from_secs(600))
        .test("killed_for_lack_of_memory", killed_for_lack_of_memory)
        .run()
}

/// Files whose last chunk is not full stay in the daemon's memory for a while.
fn hoard(mount: &Path, round: u64, rng: &mut Rng) -> Outcome {
    let top = mount.join(format!("hoard-{round}"));
    let bytes = rng.bytes(900 << 10);
    let fill = || -> std::io::Result<()> {
        fs::create_dir(&top)?;
        for number in 0.. {
            fs::write(top.join(format!("file-{}", number % 400)), &bytes)?;
        }
        Ok(())
    };
    match fill() {
        Err(_) if is_dead(mount) => Ok(()),
        done => Ok(done?),
    }
}

fn killed_for_lack_of_memory(case: &Case) -> Outcome {
    let seed = seed()?;
    let mut rng = Rng::new(seed);
    let mut mount = case.mount("fs", &["--memory", "1G"])?;
    let mut writers = Writer::several(mount.path(), WRITERS, &mut rng)?;
    mount.unmount()?;
    let group = MemoryGroup::new(LIMIT)?;
    let (mut kills, mut checked, mut acknowledged) = (0, 0, 0);
    for round in rounds(ROUNDS) {
        let mut served = mount.serve(group.command(&binary()))?;
        ensure!(
            served.is_running()?,
            "{} MiB are too little even to mount: {}",
            LIMIT / MIB,
            mount.log_tail()
        );
        let ended = std::thread::scope(|scope| -> Outcome<_> {
            let running: Vec<_> = writers
                .iter_mut()
                .map(|writer| scope.spawn(|| writer.work_until_death()))
                .collect();
            let path = mount.path();
            let hoarder = scope.spawn(|| hoard(path, round, &mut rng));
            let ended = served.end(PATIENCE)?;
            if ended.is_none() {
                served.signal(Signal::SIGKILL)?;
            }
            for handle in running.into_iter().chain([hoarder]) {
                handle.join().expect("a worker panicked")?;
            }
            Ok(ended)
        })
        .doing(format!("round {round}, seed {seed}"))?;
        let status = ended.doing("the daemon got along with too little memory")?;
        ensure!(
            status.signal() == Some(Signal::SIGKILL as i32) && group.kills()? == kills + 1,
            "the daemon ended with {status} instead of being killed for lack of memory: {}",
            mount.log_tail()
        );
        kills += 1;
        mount.detach();
        mount.fsck_is_clean()?;
        mount.start()?;
        for writer in &mut writers {
            writer.names_are_kept();
            checked += writer
                .verify()
                .doing(format!("after round {round}, seed {seed}"))?;
            acknowledged += writer.take_acknowledged();
        }
        fs::remove_dir_all(mount.path().join(format!("hoard-{round}")))?;
        mount.unmount()?;
    }
    note(format!(
        "{kills} kills, {acknowledged} acknowledged fsyncs, {checked} files checked"
    ));
    ensure!(
        acknowledged > kills && checked > kills,
        "next to nothing was done"
    );
    tally("killed for lack of memory: rounds", kills, kills, 0);
    mount.fsck_is_clean()
}
