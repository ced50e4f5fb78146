//! `shale demo`: what it writes, and where.

mod beside;
mod netcdf;
mod noise;
mod scratch;
mod weather;

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use twox_hash::XxHash3_128;

use crate::commands::settle;
use crate::commands::stat::vars;
use crate::control::{self, PathUsage};
use crate::interrupt::Interrupt;
use crate::output::failure::{Failure, exit};
use crate::output::report::{counted, print};
use crate::output::size;
use beside::Sample;
use scratch::Scratch;
use weather::Weather;

const HELP: &str = "\
Environment:
  KEEP=1     keep the mount, and print how to use and unmount it
  TMPDIR     where to create the directory when none is given

Examples:
  shale demo
  KEEP=1 shale demo /scratch/shale-demo";

#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct DemoArgs {
    /// Empty or missing directory to work in [default: a new one in TMPDIR]
    pub(crate) dir: Option<PathBuf>,
    /// Time steps to write, about 37 MiB each
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) steps: u32,
}

const FILE: &str = "weather.nc";
/// Where the classic format counts records.
const RECORD_COUNT: u64 = 4;
const READ_SIZE: usize = 1 << 20;

pub(crate) fn run(args: &DemoArgs) -> Result<ExitCode, Failure> {
    let interrupt = Interrupt::install()?;
    let weather = Weather::new();
    let length = weather.dataset().file_size(args.steps);
    let mut scratch = Scratch::new(args.dir.as_deref())?;
    scratch.need(length + (64 << 20))?;
    let path = scratch.mountpoint().join(FILE);

    scratch.mount()?;
    say("store", &scratch.store().display().to_string())?;
    say("mount point", &scratch.mountpoint().display().to_string())?;
    say(
        "writing",
        &format!(
            "{FILE}: {}, {}",
            size::human(length),
            counted(args.steps.into(), "time step", "time steps")
        ),
    )?;
    let written = write(&path, &weather, args.steps, &interrupt)?;
    say(
        "written",
        &format!(
            "{}, fsync included: {}",
            size::rate(length, written.time),
            stored(&path)?
        ),
    )?;
    let begun = Instant::now();
    settle::one(&path, &interrupt)?;
    let time = begun.elapsed().as_secs_f64();
    say("settled", &format!("in {time:.1} s: {}", stored(&path)?))?;

    // After a remount, reads come from the store and not from a cache.
    scratch.unmount()?;
    scratch.mount()?;
    say("a slice", &slice(&path, &scratch, &weather, args.steps)?)?;
    let read = read(&path, &interrupt)?;
    if read.length != length || read.checksum != written.checksum {
        return Err(Failure::new(
            exit::IO,
            format_args!(
                "{FILE} differs after reading it back ({} bytes, {:032x}; written {length}, \
                 {:032x}); please report this",
                read.length, read.checksum, written.checksum
            ),
        ));
    }
    say(
        "read back",
        &format!(
            "{} after a remount, every byte as written",
            size::rate(length, read.time)
        ),
    )?;
    interrupt.check()?;
    if let Some(text) = beside(&scratch, &weather, &interrupt)? {
        say("others", &text)?;
    }
    print(&format!("\n{}", vars::table(&path)?))?;

    if std::env::var_os("KEEP").is_some_and(|keep| !keep.is_empty() && keep != "0") {
        print(&how_to_use(&scratch))?;
        scratch.keep();
    } else {
        interrupt.check()?;
        scratch.finish()?;
        print("\nunmounted and removed; KEEP=1 keeps the mount to try\n")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The space of a file now.
fn stored(path: &Path) -> Result<String, Failure> {
    let taken = PathUsage::of(path)?.figures;
    Ok(format!(
        "{} stored, {}",
        size::human(taken.stored),
        size::human_ratio(taken.raw, taken.stored)
    ))
}

/// Reads the temperature around one circle of latitude, at all levels and times: a few bytes from
/// many places of the file.
fn slice(path: &Path, scratch: &Scratch, weather: &Weather, steps: u32) -> Result<String, Failure> {
    let mountpoint = scratch.mountpoint();
    let fetched = || -> Result<u64, Failure> {
        let text = control::ask(&mountpoint, "bytes_read")?;
        Ok(text.and_then(|text| text.parse().ok()).unwrap_or(0))
    };
    let failed = |e: io::Error| Failure::io("read", path, &e);
    let [levels, rows, row] = Weather::SHAPE;
    let wanted = rows * 3 / 4;
    let mut circle = vec![0; row];
    let mut length = 0;
    let before = fetched()?;
    let begun = Instant::now();
    let file = File::open(path).map_err(failed)?;
    for step in 0..steps {
        let variable = weather.dataset().place("ta", step).unwrap_or(0);
        for level in 0..levels {
            let at = variable + ((level * rows + wanted) * row) as u64;
            file.read_exact_at(&mut circle, at).map_err(failed)?;
            length += circle.len() as u64;
        }
    }
    Ok(format!(
        "ta[:, :, {wanted}, :], {} from {} places in {} ms: read {} of {} stored",
        size::human(length),
        length / row as u64,
        begun.elapsed().as_millis(),
        size::human(fetched()? - before),
        size::human(PathUsage::of(path)?.figures.stored),
    ))
}

/// The ratios of other programs for one time step.
fn beside(
    scratch: &Scratch,
    weather: &Weather,
    interrupt: &Interrupt,
) -> Result<Option<String>, Failure> {
    let sample = Sample::write(scratch.root(), weather)?;
    let mut parts = Vec::new();
    let mut add = |name: &str, ratio: Option<f64>| {
        parts.extend(ratio.map(|ratio| format!("{name} {ratio:.2}x")));
        interrupt.check()
    };
    add("gzip -6", sample.gzip())?;
    add("nccopy -d5 -s", sample.nccopy())?;
    Ok((!parts.is_empty()).then(|| format!("{} (of one time step)", parts.join(", "))))
}

fn say(what: &str, text: &str) -> Result<(), Failure> {
    print(&format!("{what:<12} {text}\n"))
}

struct Written {
    time: Duration,
    /// Of the finished file.
    checksum: u128,
}

/// Writes as a model does: definitions, then record after record, counting them in the header.
/// The time it takes to simulate is not counted.
fn write(
    path: &Path,
    weather: &Weather,
    steps: u32,
    interrupt: &Interrupt,
) -> Result<Written, Failure> {
    let dataset = weather.dataset();
    let mut time = Duration::ZERO;
    let mut timed = |work: &mut dyn FnMut() -> io::Result<()>| {
        let begun = Instant::now();
        let result = work().map_err(|e| Failure::io("write", path, &e));
        time += begun.elapsed();
        result
    };
    let mut file = File::create_new(path).map_err(|e| Failure::io("create", path, &e))?;
    let mut checksum = XxHash3_128::new();
    checksum.write(&dataset.header(steps));
    checksum.write(&weather.fixed());
    timed(&mut || file.write_all(&dataset.header(0)))?;
    timed(&mut || file.write_all(&weather.fixed()))?;
    for step in 0..steps {
        weather.record(step, |piece| {
            interrupt.check()?;
            checksum.write(piece);
            timed(&mut || file.write_all(piece))
        })?;
        let count = (step + 1).to_be_bytes();
        timed(&mut || file.write_all_at(&count, RECORD_COUNT))?;
    }
    timed(&mut || file.sync_all())?;
    Ok(Written {
        time,
        checksum: checksum.finish_128(),
    })
}

struct Reread {
    length: u64,
    time: Duration,
    checksum: u128,
}

fn read(path: &Path, interrupt: &Interrupt) -> Result<Reread, Failure> {
    let failed = |e: io::Error| Failure::io("read", path, &e);
    let mut file = File::open(path).map_err(failed)?;
    let mut checksum = XxHash3_128::new();
    let mut buffer = vec![0; READ_SIZE];
    let (mut length, mut time) = (0, Duration::ZERO);
    loop {
        interrupt.check()?;
        let begun = Instant::now();
        let count = file.read(&mut buffer).map_err(failed)?;
        time += begun.elapsed();
        if count == 0 {
            break;
        }
        checksum.write(&buffer[..count]);
        length += count as u64;
    }
    Ok(Reread {
        length,
        time,
        checksum: checksum.finish_128(),
    })
}

fn how_to_use(scratch: &Scratch) -> String {
    let program = std::env::current_exe().unwrap_or_else(|_| "shale".into());
    format!(
        "\nThe store is still mounted. Try\n\
         \x20 ncdump -h {mnt}/{FILE}\n\
         \x20 cp YOUR_FILES {mnt} && {shale} stat {mnt}\n\
         and when you are done\n\
         \x20 {shale} unmount {mnt} && rm -r {root}\n",
        mnt = scratch.mountpoint().display(),
        shale = program.display(),
        root = scratch.root().display(),
    )
}
