//! The daemon aborts at a named stage of its work.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;
use shale_backing::failpoint::Stage;
use shale_tests::{
    Case, Cmd, Context, Failure, Mount, Outcome, Rng, Writer, binary, ensure, failpoints_binary,
    is_long, note, rounds, seed, tally,
};

use crate::churn::Churn;

const WRITERS: u64 = 3;
/// A stage that takes longer than this to be reached is never reached.
const PATIENCE: Duration = Duration::from_secs(120);
const OPTIONS: [&str; 6] = ["--chunk", "64K", "--memory", "16M", "-o", "settle=3600"];

/// When a stage is reached.
#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    /// At work, the n-th time with n up to this.
    Working(u64),
    /// When it is unmounted.
    Stopping,
    /// When it is unmounted, after everything has become durable.
    Stopped,
}

fn when(stage: Stage) -> When {
    match stage {
        Stage::FrameAppended
        | Stage::PackSynced
        | Stage::DataCommitBegins
        | Stage::DataCommitted
        | Stage::JournalAppended
        | Stage::JournalSynced => When::Working(150),
        Stage::OrphanPurged => When::Working(10),
        Stage::PackSealed
        | Stage::FoldWritten
        | Stage::FoldCommitted
        | Stage::SettleBegins
        | Stage::SettleWritten
        | Stage::SettleDurable
        | Stage::SettleSwitched
        | Stage::GcBegins
        | Stage::GcCopied
        | Stage::GcMoved
        | Stage::GcDeleted
        | Stage::CheckpointMerged
        | Stage::CheckpointStored => When::Working(if is_long() { 5 } else { 2 }),
        Stage::SnapshotWritten | Stage::SnapshotNamed | Stage::ShutDownBegins => When::Stopping,
        Stage::ShutDownSynced | Stage::ShutDownSealed | Stage::ShutDownClosed => When::Stopped,
    }
}

/// A store that lives through many deaths.
struct Life {
    mount: Mount,
    writers: Vec<Writer>,
    churn: Churn,
    acknowledged: u64,
    checked: u64,
}

pub(crate) fn aborted_at_every_stage(case: &Case) -> Outcome {
    // What is left in memory is of no interest.
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    let seed = seed()?;
    let mut rng = Rng::new(seed);
    let mut mount = case.mount("fs", &OPTIONS)?;
    let writers = Writer::several(mount.path(), WRITERS, &mut rng)?;
    let churn = Churn::new(mount.path(), rng.next_u64())?;
    mount.unmount()?;
    let mut life = Life {
        mount,
        writers,
        churn,
        acknowledged: 0,
        checked: 0,
    };
    let mut deaths = 0;
    for round in rounds(1) {
        let mut stages = Stage::ALL.to_vec();
        while !stages.is_empty() {
            let stage = stages.swap_remove(rng.below(stages.len() as u64) as usize);
            let count = match when(stage) {
                When::Working(most) => rng.between(1, most),
                When::Stopping | When::Stopped => 1,
            };
            life.die(stage, count).doing(format!(
                "{}:{count}, round {round}, seed {seed}",
                stage.name()
            ))?;
            deaths += 1;
        }
    }
    note(format!(
        "{deaths} deaths at {} stages, {} acknowledged fsyncs, {} files checked",
        Stage::ALL.len(),
        life.acknowledged,
        life.checked
    ));
    ensure!(
        life.acknowledged > deaths && life.checked > deaths,
        "next to nothing was done"
    );
    tally("abort at a named stage: deaths", deaths, deaths, 0);
    life.mount.fsck_is_clean()
}

impl Life {
    fn die(&mut self, stage: Stage, count: u64) -> Outcome {
        let line = format!("failpoint {} reached", stage.name());
        let before = self.mount.log_text().matches(&line).count();
        let command = Cmd::new(failpoints_binary())
            .env("SHALE_FAILPOINT", format!("{}:{count}", stage.name()))
            .env("MALLOC_ARENA_MAX", "2");
        let mut served = self.mount.serve(command)?;
        let stop = AtomicBool::new(false);
        let stopping = !matches!(when(stage), When::Working(_));
        let (writers, churn) = (&mut self.writers, &mut self.churn);
        let ended = std::thread::scope(|scope| -> Outcome<_> {
            let mut running = Vec::new();
            for writer in writers {
                let stop = &stop;
                running.push(scope.spawn(move || {
                    if stopping {
                        writer.work(stop)
                    } else {
                        writer.work_until_death()
                    }
                }));
            }
            let churned = if stopping {
                let done = churn.cycle();
                stop.store(true, Ordering::SeqCst);
                done
            } else {
                running.push(scope.spawn(|| churn.until_death()));
                Ok(())
            };
            let mut ended = None;
            if !stopping {
                ended = served.end(PATIENCE)?;
                if ended.is_none() {
                    served.signal(Signal::SIGKILL)?;
                }
            }
            for handle in running {
                handle.join().expect("a worker panicked")?;
            }
            churned?;
            if stopping {
                served.signal(Signal::SIGTERM)?;
                ended = served.end(PATIENCE)?;
            }
            Ok(ended)
        })?;
        let status = ended.doing("the stage was never reached")?;
        ensure!(
            status.signal() == Some(Signal::SIGABRT as i32),
            "ended with {status} instead of SIGABRT: the stage was never reached"
        );
        ensure!(
            self.mount.log_text().matches(&line).count() == before + 1,
            "aborted elsewhere: {}",
            self.mount.log_tail()
        );
        self.mount.detach();
        self.mount.fsck_is_clean()?;
        self.mount.start()?;
        for writer in &mut self.writers {
            if when(stage) == When::Stopped {
                writer.everything_is_kept();
            } else {
                writer.names_are_kept();
            }
            self.checked += writer.verify()?;
            self.acknowledged += writer.take_acknowledged();
        }
        self.checked += self.churn.verify()?;
        self.mount.unmount()
    }
}

pub(crate) fn the_shipped_command_has_none(_: &Case) -> Outcome {
    let holds = |path: &std::path::Path| -> Outcome<bool> {
        let program = fs::read(path).doing(format!("reading {}", path.display()))?;
        let name = b"SHALE_FAILPOINT";
        Ok(program.windows(name.len()).any(|window| window == name))
    };
    ensure!(
        holds(&failpoints_binary())?,
        "{} has no failpoints; run `make failpoints`",
        failpoints_binary().display()
    );
    if holds(&binary())? {
        return Err(Failure::new(format!(
            "{} has failpoints: it must not be shipped",
            binary().display()
        )));
    }
    Ok(())
}
