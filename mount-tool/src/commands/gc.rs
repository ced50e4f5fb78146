//! `shale gc`

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use crate::attributes::{ask, check_place, stranger, tell, unreadable};
use crate::cli::GcArgs;
use crate::failure::{Failure, exit};
use crate::report;
use crate::size;
use crate::wait::Waiting;

const POLL: Duration = Duration::from_millis(100);

pub(crate) fn run(args: &GcArgs) -> Result<ExitCode, Failure> {
    let path = &args.mountpoint;
    check_place(path)?;
    let before = garbage(path)?;
    tell(path, "user.shale.gc.now", &args.live.to_string())
        .map_err(|e| unreadable(path, &e.into()))?;
    if args.wait {
        let _waiting = Waiting::for_("rewriting packs".to_owned());
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
                    "collecting garbage in {} broke off; the daemon's log says why",
                    path.display()
                ),
            ));
        }
        let after = garbage(path)?;
        report::print(&format!(
            "garbage {} before, {} now\n",
            size::human(before),
            size::human(after)
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn garbage(path: &Path) -> Result<u64, Failure> {
    ask(path, "garbage")?
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| stranger(path))
}
