//! `shale gc`

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;
use shale_fs::live::Gc;

use super::top;
use crate::attributes::{ask, tell, unreadable};
use crate::cli::GcArgs;
use crate::failure::{Failure, exit};
use crate::report;
use crate::size;
use crate::wait::Waiting;

const POLL: Duration = Duration::from_millis(100);

/// What came of it.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Collected {
    path: String,
    /// Packs that were rewritten or found dead, and are deleted.
    packs: u64,
    /// Bytes that this gave back to the device.
    given_back: u64,
    /// Bytes that nothing needs and that are still there.
    garbage: u64,
}

pub(crate) fn run(args: &GcArgs) -> Result<ExitCode, Failure> {
    let path = &args.mountpoint;
    top::check_mount(path)?;
    let before = top::sample(path)?.gc;
    tell(path, "user.shale.gc.now", &args.live.to_string())
        .map_err(|e| unreadable(path, &e.into()))?;
    if args.wait || args.json {
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
        let collected = Collected::between(path, &before, &top::sample(path)?.gc);
        if args.json {
            report::print_json("gc", &collected)?;
        } else {
            report::print(&collected.text())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl Collected {
    fn between(path: &Path, before: &Gc, after: &Gc) -> Self {
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
        let before = Gc {
            freed: 100,
            moved: 10,
            deleted: 1,
            ..Gc::default()
        };
        let after = Gc {
            freed: 4 << 20,
            moved: 1 << 20,
            deleted: 3,
            garbage: 7,
            ..Gc::default()
        };
        let collected = Collected::between(Path::new("/m"), &before, &after);
        assert_eq!((collected.packs, collected.garbage), (2, 7));
        assert_eq!(collected.given_back, (3 << 20) - 90);
        assert_eq!(
            collected.text(),
            "3.00 MiB given back, 7 B of garbage left\n"
        );
    }
}
