//! `shale settle`

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use rustix::io::Errno;
use serde::Serialize;

use crate::attributes::{ask, check_place, tell, unreadable};
use crate::cli::SettleArgs;
use crate::failure::{Failure, exit};
use crate::report;
use crate::size;
use crate::wait::Progress;

const POLL: Duration = Duration::from_millis(50);

#[derive(Debug, Default, Serialize)]
struct Summary {
    files: usize,
    /// Files left out because they are open for writing.
    busy: usize,
    raw: u64,
    stored_before: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    stored_after: Option<u64>,
}

struct Asked {
    path: PathBuf,
    raw: u64,
}

pub(crate) fn run(args: &SettleArgs) -> Result<ExitCode, Failure> {
    let mut files = Vec::new();
    for path in &args.paths {
        check_place(path)?;
        let metadata = path.symlink_metadata().map_err(|e| unreadable(path, &e))?;
        collect(path, metadata.file_type(), &mut files)?;
    }
    let how = if args.rewrite { "rewrite" } else { "1" };
    let mut summary = Summary::default();
    let mut asked = Vec::new();
    for path in files {
        // Before it is asked for: it may be quick.
        let (raw, before) = (figure(&path, "raw")?, figure(&path, "stored")?);
        match tell(&path, "user.shale.settle.now", how) {
            Ok(()) => {
                summary.files += 1;
                summary.raw += raw;
                summary.stored_before += before;
                asked.push(Asked { path, raw });
            }
            Err(Errno::BUSY) => summary.busy += 1,
            // Deleted while we look.
            Err(Errno::NOENT) => {}
            Err(e) => return Err(unreadable(&path, &e.into())),
        }
    }
    if args.wait || args.rewrite {
        let what = if args.rewrite {
            "rewriting"
        } else {
            "settling"
        };
        summary.stored_after = Some(wait(what, &asked, summary.raw)?);
    }
    if args.json {
        report::print_json(&summary)?;
    } else {
        report::print(&summary.text())?;
    }
    if summary.busy > 0 {
        return Ok(ExitCode::from(exit::BUSY));
    }
    Ok(ExitCode::SUCCESS)
}

/// Regular files below a path; links are not followed.
fn collect(
    path: &Path,
    file_type: std::fs::FileType,
    files: &mut Vec<PathBuf>,
) -> Result<(), Failure> {
    if file_type.is_file() {
        files.push(path.to_owned());
    } else if file_type.is_dir() {
        for entry in std::fs::read_dir(path).map_err(|e| unreadable(path, &e))? {
            let entry = entry.map_err(|e| unreadable(path, &e))?;
            let inner = entry.path();
            let file_type = entry.file_type().map_err(|e| unreadable(&inner, &e))?;
            collect(&inner, file_type, files)?;
        }
    }
    Ok(())
}

/// Waits until nothing of it is being settled; returns the stored bytes of all.
fn wait(what: &'static str, asked: &[Asked], total: u64) -> Result<u64, Failure> {
    let mut progress = Progress::of(what);
    let (mut done, mut stored) = (0, 0);
    for file in asked {
        while is_settling(&file.path)? {
            let part = figure(&file.path, "progress")?.min(file.raw);
            progress.update(done + part, total);
            std::thread::sleep(POLL);
        }
        done += file.raw;
        stored += figure(&file.path, "stored")?;
    }
    Ok(stored)
}

fn is_settling(path: &Path) -> Result<bool, Failure> {
    match ask(path, "state") {
        Ok(state) => Ok(state.as_deref() == Some("settling")),
        Err(failure) if failure.status == exit::NO_INPUT => Ok(false),
        Err(failure) => Err(failure),
    }
}

/// A number that the file system reports; 0 for a file that has gone.
fn figure(path: &Path, name: &str) -> Result<u64, Failure> {
    match ask(path, name) {
        Ok(text) => Ok(text.and_then(|text| text.parse().ok()).unwrap_or(0)),
        Err(failure) if failure.status == exit::NO_INPUT => Ok(0),
        Err(failure) => Err(failure),
    }
}

impl Summary {
    fn text(&self) -> String {
        let mut text = match self.stored_after {
            Some(after) => format!(
                "{} files, {} raw: {} stored before, {} now ({})\n",
                self.files,
                size::human(self.raw),
                size::human(self.stored_before),
                size::human(after),
                size::human_ratio(self.raw, after)
            ),
            None => format!(
                "{} files, {} raw, are going to be settled\n",
                self.files,
                size::human(self.raw)
            ),
        };
        if self.busy > 0 {
            text.push_str(&format!(
                "{} files are open for writing and were left out\n",
                self.busy
            ));
        }
        text
    }
}
