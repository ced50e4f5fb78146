//! `shale gc`

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use shale_fs::stats::GcStats;

use crate::control::{ask, check_mount, sample, tell, unreadable};
use crate::output::failure::{Failure, exit};
use crate::output::progress::Spinner;
use crate::output::report;
use crate::output::size;

const HELP: &str = "\
Exit status:
  0 done, 64 wrong usage, 66 not a ShaleFS mount, 69 no longer mounted, 74 I/O error,
  77 no permission

Examples:
  shale gc --wait ~/data
  shale gc --live 95 ~/data     also rewrite packs with only 5 % of garbage";

#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct GcArgs {
    /// Wait until it is done, and show how much space was freed
    #[arg(short, long)]
    pub(crate) wait: bool,
    /// Print that as JSON, sizes in bytes; waits
    #[arg(long)]
    pub(crate) json: bool,
    /// Rewrite packs of which less than this percentage is live
    #[arg(long, value_name = "PERCENT", default_value_t = 80, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub(crate) live: u8,
    /// Where the store is mounted
    pub(crate) mountpoint: PathBuf,
}

const POLL: Duration = Duration::from_millis(100);

/// The result of a pass.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct GcReport {
    path: String,
    /// Packs deleted, because they were rewritten or all garbage.
    packs: u64,
    /// Bytes freed on the device.
    given_back: u64,
    /// Bytes of garbage that are left.
    garbage: u64,
}

pub(crate) fn run(args: &GcArgs) -> Result<ExitCode, Failure> {
    let path = &args.mountpoint;
    check_mount(path)?;
    let before = sample(path)?.gc;
    tell(path, "user.shale.gc.now", &args.live.to_string())
        .map_err(|e| unreadable(path, &e.into()))?;
    if args.wait || args.json {
        let _spinner = Spinner::new("rewriting packs".to_owned());
        let ended = loop {
            let state = ask(path, "gc")?;
            if state.as_deref() != Some("running") {
                break state;
            }
            std::thread::sleep(POLL);
        };
        if ended.as_deref() == Some("failed") {
            return Err(Failure::new(
                exit::IO,
                format_args!(
                    "garbage collection in {0} failed; 'shale doctor {0}' finds the daemon's log, which \
                     says why",
                    path.display()
                ),
            ));
        }
        let collected = GcReport::between(path, &before, &sample(path)?.gc);
        if args.json {
            report::print_json("gc", &collected)?;
        } else {
            report::print(&collected.text())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl GcReport {
    fn between(path: &Path, before: &GcStats, after: &GcStats) -> Self {
        let freed = after.freed.saturating_sub(before.freed);
        let moved = after.moved.saturating_sub(before.moved);
        Self {
            path: report::name(path),
            packs: after.deleted.saturating_sub(before.deleted),
            given_back: freed.saturating_sub(moved),
            garbage: after.garbage,
        }
    }

    fn text(&self) -> String {
        format!(
            "{} given back, {} of garbage left\n",
            size::human(self.given_back),
            size::human(self.garbage)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_moved_is_not_given_back() {
        let before = GcStats {
            freed: 100,
            moved: 10,
            deleted: 1,
            ..GcStats::default()
        };
        let after = GcStats {
            freed: 4 << 20,
            moved: 1 << 20,
            deleted: 3,
            garbage: 7,
            ..GcStats::default()
        };
        let collected = GcReport::between(Path::new("/m"), &before, &after);
        assert_eq!((collected.packs, collected.garbage), (2, 7));
        assert_eq!(collected.given_back, (3 << 20) - 90);
        assert_eq!(
            collected.text(),
            "3.00 MiB given back, 7 B of garbage left\n"
        );
    }
}
