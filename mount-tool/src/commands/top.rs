//! `shale top`: watches a mount.

mod rates;
mod screen;
mod terminal;

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use shale_fs::stats::MountStats;

use crate::control::{check_mount, sample, unreadable};
use crate::output::failure::{Failure, exit};
use crate::output::report;
use crate::system::paths;
use rates::Rates;

const HELP: &str = "\
Lines:
  in, out    bytes per second that programs write and read
  packs      bytes per second appended to and read from packs
  store      everything in the store; free space of its device
  buffer     written data that is not stored yet, and its limit, at which writers wait
  cache      decoded data in memory, and the share of look-ups that it answered
  queues     chunks to encode, frames to decode ahead, files to settle
  settle, gc what the background passes do, and have done since the mount began
  ops        operations and how long they took; errors are operations that failed, not expected
             answers such as ENOENT

Rates cover the time between two samples.

Keys:
  q, Esc, Ctrl-C   quit

Exit status:
  0 quit, 64 wrong usage, 66 not a ShaleFS mount, 69 no longer mounted, 74 I/O error,
  77 neither root nor the user who mounted, 130 Ctrl-C, or the terminal was closed

Examples:
  shale top ~/data
  shale top --once ~/data
  shale top --json --interval 10 ~/data | jq .rates";

#[derive(Args, Debug)]
#[command(after_help = HELP)]
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

/// One sample as JSON.
#[derive(Serialize)]
struct Sample<'a> {
    path: String,
    rates: &'a Rates,
    #[serde(rename = "live")]
    stats: &'a MountStats,
}

pub(crate) fn run(args: &TopArgs) -> Result<ExitCode, Failure> {
    let path = paths::absolute(&args.mountpoint).map_err(|e| unreadable(&args.mountpoint, &e))?;
    check_mount(&path)?;
    let first = sample(&path)?;
    if !args.once && !args.json {
        if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
            return Err(Failure::new(
                exit::USAGE,
                "stdin or stdout is not a terminal; use --once or --json",
            ));
        }
        return terminal::run(&path, args.interval, first);
    }
    std::thread::sleep(args.interval);
    let mut stats = sample(&path)?;
    let rates = Rates::between(&first, &stats);
    if args.json {
        // The rates have it, with names.
        stats.traffic.clear();
        let sample = Sample {
            path: report::name(path),
            rates: &rates,
            stats: &stats,
        };
        report::print_json("top", &sample)?;
    } else {
        let dashboard = screen::Dashboard {
            mountpoint: &path,
            stats: &stats,
            rates: &rates,
            history: None,
        };
        report::print(&screen::text(&dashboard))?;
    }
    Ok(ExitCode::SUCCESS)
}
