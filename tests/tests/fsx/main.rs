//! fsx: long random sequences of reads, writes, mappings, truncations and holes.

use std::fs;
use std::process::ExitCode;
use std::time::Duration;

use shale_tests::{Case, Cmd, Failure, Need, Outcome, Suite, ensure, note, tally, tool};

/// Everything that Linux can do on a FUSE file system. Sizes begin at 1 because
/// posix_fallocate of nothing is an error by POSIX.
const WEIGHTS: &str = r"
nosizechecks = false
[weights]
close_open = 2
read = 10
write = 10
mapread = 10
mapwrite = 10
invalidate = 1
truncate = 4
fsync = 0.5
fdatasync = 0.5
posix_fallocate = 3
punch_hole = 4
sendfile = 3
posix_fadvise = 2
copy_file_range = 4
";

/// One run: within a chunk, across a few, across many; each mapped write made
/// durable at once, or left to the kernel.
#[derive(Clone, Copy)]
struct Run {
    seed: u64,
    largest_file: u32,
    largest_operation: u32,
    msync: bool,
}

const RUNS: [Run; 4] = [
    Run {
        seed: 1,
        largest_file: 256 << 10,
        largest_operation: 64 << 10,
        msync: true,
    },
    Run {
        seed: 2,
        largest_file: 256 << 10,
        largest_operation: 64 << 10,
        msync: false,
    },
    Run {
        seed: 3,
        largest_file: 2_500_000,
        largest_operation: 64 << 10,
        msync: false,
    },
    Run {
        seed: 4,
        largest_file: 5_000_000,
        largest_operation: 128 << 10,
        msync: false,
    },
];

fn main() -> ExitCode {
    Suite::new("fsx")
        .need(Need::File(tool("fsx")))
        .limit(Duration::from_secs(500))
        .test("random_operations", |case| {
            exercise(case, "fsx", 50_000, &[])
        })
        .test(
            "random_operations_with_small_chunks_and_little_memory",
            |case| {
                exercise(
                    case,
                    "fsx, 64 KiB chunks, 16 MiB",
                    25_000,
                    &["--chunk", "64K", "--memory", "16M"],
                )
            },
        )
        .test("random_operations_without_the_page_cache", |case| {
            exercise(case, "fsx, direct_io", 10_000, &["-o", "direct_io"])
        })
        .run()
}

fn exercise(case: &Case, name: &str, operations: u64, options: &[&str]) -> Outcome {
    let fs = case.fs_with(options)?;
    let run = |Run {
                   seed,
                   largest_file: length,
                   largest_operation: largest,
                   msync,
               }: Run|
     -> Outcome {
        let configuration = case.work().join(format!("fsx-{seed}.toml"));
        let sizes = format!("\n[opsize]\nmin = 1\nmax = {largest}\nalign = 1\n");
        fs::write(
            &configuration,
            format!(
                "flen = {length}\nnomsyncafterwrite = {}\n{WEIGHTS}{sizes}",
                !msync
            ),
        )?;
        let artifacts = case.dir(&format!("artifacts-{seed}"))?;
        let output = Cmd::new(tool("fsx"))
            .arg("-f")
            .arg(&configuration)
            .args(["-N", &operations.to_string(), "-S", &seed.to_string(), "-P"])
            .arg(&artifacts)
            .arg(fs.at(&format!("fsx-{seed}")))
            .limit(Duration::from_secs(240))
            .run()?;
        if !output.status.success() {
            return Err(Failure::new(format!(
                "seed {seed}, file of up to {length}: {}",
                output.describe()
            )));
        }
        ensure!(
            output.text().contains("All operations completed A-OK!"),
            "seed {seed}: {}",
            output.describe()
        );
        Ok(())
    };
    // Two at a time: they share the daemon's memory and its packs.
    for pair in RUNS.chunks(2) {
        std::thread::scope(|scope| {
            let workers: Vec<_> = pair.iter().map(|one| scope.spawn(|| run(*one))).collect();
            workers
                .into_iter()
                .try_for_each(|worker| worker.join().expect("a run panicked"))
        })?;
    }
    let total = operations * RUNS.len() as u64;
    note(format!(
        "{total} operations, seeds {:?}",
        RUNS.map(|run| run.seed)
    ));
    tally(&format!("{name}: operations"), total, total, 0);
    fs.finish()
}
