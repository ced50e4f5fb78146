//! `shale top`: what a mount is doing, live.

mod rates;
mod screen;
mod terminal;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use shale_fs::live::Live;

use crate::attributes::{ask_now, check_place, unreadable};
use crate::failure::{Failure, exit};
use crate::paths;
use crate::report;
use rates::Rates;

const TOP_HELP: &str = "\
Lines:
  in, out    bytes per second that programs write and read
  packs      bytes per second appended to and read from packs
  store      everything in the store; free space of its device
  buffer     written data that is not stored yet, of what may be; writers wait when it is full
  cache      decoded data in memory; how many look-ups found what they wanted
  queues     chunks to encode, frames to decode ahead, files to settle
  settle, gc what the background passes do, and have done since the mount began
  ops        operations and how long they took; errors are those that failed, not answers such
             as that a name is not there

Rates are of the time between two samples.

Keys:
  q, Esc, Ctrl-C   quit

Exit status:
  0 quit, 64 wrong usage, 66 not a ShaleFS mount, 69 the mount has gone, 74 I/O error,
  77 no permission: root and who mounted may look, 130 Ctrl-C, or the terminal has gone

Examples:
  shale top ~/data
  shale top --once ~/data
  shale top --json --interval 10 ~/data | jq .rates";

#[derive(Args, Debug)]
#[command(after_help = TOP_HELP)]
pub(crate) struct TopArgs {
    /// Print one sample and quit
    #[arg(long)]
    pub(crate) once: bool,
    /// Print one sample as JSON and quit
    #[arg(long)]
    pub(crate) json: bool,
    /// Seconds between samples, 0.1 to 3600
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    pub(crate) interval: Duration,
    /// Where the store is mounted
    pub(crate) mountpoint: PathBuf,
}

fn interval(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("give seconds from 0.1 to 3600".to_owned()),
    }
}

/// One sample for machines.
#[derive(Serialize)]
struct Sample<'a> {
    path: String,
    rates: &'a Rates,
    live: &'a Live,
}

pub(crate) fn run(args: &TopArgs) -> Result<ExitCode, Failure> {
    let path = paths::absolute(&args.mountpoint).map_err(|e| unreadable(&args.mountpoint, &e))?;
    check_mount(&path)?;
    let first = sample(&path)?;
    if !args.once && !args.json {
        if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
            return Err(Failure::new(
                exit::USAGE,
                "this is not a terminal; use --once or --json",
            ));
        }
        return terminal::run(&path, args.interval, first);
    }
    std::thread::sleep(args.interval);
    let mut live = sample(&path)?;
    let rates = Rates::between(&first, &live);
    if args.json {
        // It is in the rates, with names.
        live.traffic.clear();
        let sample = Sample {
            path: report::name(path),
            rates: &rates,
            live: &live,
        };
        report::print_json("top", &sample)?;
    } else {
        let view = screen::View {
            mountpoint: &path,
            live: &live,
            rates: &rates,
            history: None,
        };
        report::print(&screen::text(&view))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether a path can stand for a mount: its files have no figures of that kind.
pub(super) fn check_mount(path: &Path) -> Result<(), Failure> {
    check_place(path)?;
    let metadata = std::fs::metadata(path).map_err(|e| unreadable(path, &e))?;
    if metadata.is_dir() {
        return Ok(());
    }
    Err(Failure::new(
        exit::NO_INPUT,
        format_args!(
            "{} is not a directory; name the mount point",
            path.display()
        ),
    ))
}

/// Asks the mount; one line about what is wrong when it does not answer.
pub(super) fn sample(path: &Path) -> Result<Live, Failure> {
    let gone = || {
        Failure::new(
            exit::UNAVAILABLE,
            format_args!("{} is not mounted any more", path.display()),
        )
    };
    let text = match ask_now(path, "live") {
        Ok(Some(text)) => text,
        Ok(None) | Err(rustix::io::Errno::NOENT) => return Err(gone()),
        Err(rustix::io::Errno::PERM) => {
            return Err(Failure::new(
                exit::NO_PERMISSION,
                format_args!(
                    "only root and who mounted {} may watch and steer it",
                    path.display()
                ),
            ));
        }
        Err(e) => return Err(unreadable(path, &e.into())),
    };
    serde_json::from_str(&text).map_err(|_| {
        Failure::new(
            exit::SOFTWARE,
            format_args!(
                "{}: the figures cannot be read; is the daemon of another version than this \
                 command?",
                path.display()
            ),
        )
    })
}
