//! `shale settle`

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use rustix::io::Errno;
use serde::Serialize;

use crate::control::{PathUsage, ask, check_place, tell, unreadable};
use crate::interrupt::Interrupt;
use crate::output::failure::{Failure, exit, one_line};
use crate::output::progress::Progress;
use crate::output::report::{self, Problem, counted};
use crate::output::size;
use crate::system::file_id::FileId;

const HELP: &str = "\
Exit status:
  0 done, 64 wrong usage, 66 not in a ShaleFS mount, 74 I/O error or some
  files could not be settled, 75 files are being written or were cancelled,
  77 no permission, 130 interrupted; queued files settle in the background

Examples:
  shale settle --wait ~/data/run1
  shale settle ~/data/run1/history.nc
  shale settle --rewrite ~/data/run1     after 'shale policy set codec=zstd:9 ~/data/run1'
  shale settle --cancel ~/data           cancel all requests that are not done";

#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct SettleArgs {
    /// Wait until it is done, and show what was gained
    #[arg(short, long)]
    pub(crate) wait: bool,
    /// Encode everything again by the policy now in effect, chunk size included; waits
    #[arg(long)]
    pub(crate) rewrite: bool,
    /// Cancel requests at or below PATH (default: here) that are not done yet
    #[arg(long, conflicts_with_all = ["wait", "rewrite"])]
    pub(crate) cancel: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Files and directories in a ShaleFS mount
    #[arg(required_unless_present = "cancel", value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
}

const POLL: Duration = Duration::from_millis(50);

/// How long a file that is being encoded is given to end after it was cancelled.
const PATIENCE: Duration = Duration::from_secs(10);

/// Files that are synced at a time.
const SYNCS: usize = 32;

/// Names shown at most, unless JSON is asked for.
const SHOWN: usize = 20;

/// Why a file of another user is not settled.
const DENIED: &str = "no permission";

#[derive(Debug, Default, Serialize)]
struct Summary {
    files: usize,
    /// Files skipped because they are being written.
    busy: usize,
    /// Files that could not be settled.
    failed: usize,
    /// Files whose request was cancelled.
    cancelled: usize,
    raw: u64,
    stored_before: u64,
    /// None when it was not waited for.
    stored_after: Option<u64>,
    /// The files that are being written or could not be settled.
    problems: Vec<Problem>,
}

struct SettleRequest {
    path: PathBuf,
    raw: u64,
    before: u64,
}

pub(crate) fn run(args: &SettleArgs) -> Result<ExitCode, Failure> {
    if args.cancel {
        return cancel(args);
    }
    let waits = args.wait || args.rewrite;
    let interrupt = waits.then(Interrupt::install).transpose()?;
    let interrupted = || interrupt.as_ref().is_some_and(Interrupt::is_set);
    let mut files = Files::default();
    let mut summary = Summary::default();
    for path in &args.paths {
        check_place(path)?;
        // Links that are named are followed, as in all commands. Links below them are not.
        let file_type = std::fs::metadata(path)
            .map_err(|e| unreadable(path, &e))?
            .file_type();
        if !file_type.is_file() && !file_type.is_dir() {
            return Err(Failure::new(
                exit::NO_INPUT,
                format_args!(
                    "{} is neither a file nor a directory; give one of these",
                    path.display()
                ),
            ));
        }
        collect(path, file_type, &mut files, &mut summary)?;
    }
    let how = if args.rewrite { "rewrite" } else { "1" };
    if waits {
        // Unwritten data would be missing from the size before.
        sync_unwritten(&files.paths);
    }
    let mut asked = Vec::new();
    for path in files.paths {
        if interrupted() {
            return Err(goes_on(args, &asked));
        }
        // Before the request: settling may be quick.
        let shale_store::Usage {
            raw,
            stored: before,
            ..
        } = match PathUsage::of(&path) {
            Ok(taken) => taken.figures,
            Err(failure) if failure.status == exit::NO_INPUT => continue,
            Err(failure) if failure.status == exit::NO_PERMISSION => {
                summary.has_failed(&path, DENIED);
                continue;
            }
            Err(failure) => return Err(failure),
        };
        match tell(&path, "user.shale.settle.now", how) {
            Ok(()) => asked.push(SettleRequest { path, raw, before }),
            Err(Errno::BUSY) => summary.is_busy(&path),
            // Deleted meanwhile.
            Err(Errno::NOENT) => {}
            // Of another user; the rest need not wait for that.
            Err(Errno::ACCESS | Errno::PERM) => summary.has_failed(&path, DENIED),
            Err(e) => return Err(unreadable(&path, &e.into())),
        }
    }
    if waits {
        let what = if args.rewrite {
            "rewriting"
        } else {
            "settling"
        };
        if !summary.wait(what, &asked, interrupted)? {
            return Err(goes_on(args, &asked));
        }
    } else {
        asked.iter().for_each(|file| summary.count(file));
    }
    if args.json {
        report::print_json("settle", &summary)?;
    } else {
        report::print(&summary.text())?;
    }
    Ok(match summary {
        _ if summary.failed > 0 => ExitCode::from(exit::IO),
        _ if summary.busy > 0 || summary.cancelled > 0 => ExitCode::from(exit::BUSY),
        _ => ExitCode::SUCCESS,
    })
}

/// Settles one file and waits for it.
pub(crate) fn one(path: &Path, interrupt: &Interrupt) -> Result<(), Failure> {
    tell(path, "user.shale.settle.now", "1").map_err(|e| unreadable(path, &e.into()))?;
    while is_settling(path)? {
        interrupt.check()?;
        std::thread::sleep(POLL);
    }
    match outcome(path)? {
        Some(outcome) if outcome != "done" => Err(Failure::new(
            exit::IO,
            format_args!("{} was not settled: {outcome}", path.display()),
        )),
        _ => Ok(()),
    }
}

/// The state that an interrupted command leaves behind.
fn goes_on(args: &SettleArgs, asked: &[SettleRequest]) -> Failure {
    // The state of a file that cannot be queried is unknown.
    let left = asked
        .iter()
        .filter(|file| is_settling(&file.path).unwrap_or(false));
    let text = match left.count() {
        0 => "interrupted; nothing is queued any more".to_owned(),
        left => {
            let paths = args.paths.iter().map(report::name);
            format!(
                "interrupted; {left} of {} still queued and will settle in the background; \
                 'shale settle --cancel {}' cancels them",
                files(asked.len()),
                paths.collect::<Vec<_>>().join(" "),
            )
        }
    };
    Failure::new(exit::INTERRUPTED, text)
}

/// The result of `--cancel`.
#[derive(Debug, Default, Serialize)]
struct CancelReport {
    /// Files that will not be settled.
    cancelled: u64,
    /// Files that are still being settled.
    settling: u64,
}

fn cancel(args: &SettleArgs) -> Result<ExitCode, Failure> {
    let here = [PathBuf::from(".")];
    let paths = if args.paths.is_empty() {
        &here
    } else {
        &args.paths[..]
    };
    let mut all = CancelReport::default();
    for path in paths {
        check_place(path)?;
        let before = figure(path, "queued")?;
        tell(path, "user.shale.settle.now", "cancel").map_err(|e| unreadable(path, &e.into()))?;
        // A file that is being encoded stops after its current part. One that waits for a sync is
        // done after it.
        let deadline = Instant::now() + PATIENCE;
        let left = loop {
            match figure(path, "queued")? {
                left if left > 0 && Instant::now() < deadline => std::thread::sleep(POLL),
                left => break left,
            }
        };
        all.cancelled += before.saturating_sub(left);
        all.settling += left;
    }
    if args.json {
        report::print_json("settle", &all)?;
    } else {
        report::print(&all.text())?;
    }
    Ok(ExitCode::SUCCESS)
}

impl CancelReport {
    fn text(&self) -> String {
        let mut text = match self.cancelled {
            0 if self.settling == 0 => "nothing was queued\n".to_owned(),
            count => format!("{} cancelled\n", files(count as usize)),
        };
        if self.settling > 0 {
            text.push_str(&format!(
                "{} still being settled\n",
                files(self.settling as usize)
            ));
        }
        text
    }
}

/// Files to settle, each once, however many names it has.
#[derive(Debug, Default)]
struct Files {
    paths: Vec<PathBuf>,
    seen: HashSet<FileId>,
}

impl Files {
    fn add(&mut self, path: &Path) {
        // The request says why a file cannot be examined.
        let again = path
            .metadata()
            .is_ok_and(|facts| !self.seen.insert(FileId::from(&facts)));
        if !again {
            self.paths.push(path.to_owned());
        }
    }
}

/// Regular files below a path. Links are not followed. A directory without permission is a problem
/// of the summary.
fn collect(
    path: &Path,
    file_type: std::fs::FileType,
    files: &mut Files,
    summary: &mut Summary,
) -> Result<(), Failure> {
    if file_type.is_file() {
        files.add(path);
    } else if file_type.is_dir() {
        let entries = match std::fs::read_dir(path) {
            Ok(entries) => entries,
            Err(e) if e.kind() == ErrorKind::PermissionDenied => {
                summary.has_failed(path, DENIED);
                return Ok(());
            }
            // Deleted meanwhile.
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(unreadable(path, &e)),
        };
        for entry in entries {
            let entry = entry.map_err(|e| unreadable(path, &e))?;
            let inner = entry.path();
            let file_type = entry.file_type().map_err(|e| unreadable(&inner, &e))?;
            collect(&inner, file_type, files, summary)?;
        }
    }
    Ok(())
}

/// Syncs the files with unwritten data. Several at a time, because one sync of the store serves
/// every waiting file. Settling reports files that cannot be opened.
fn sync_unwritten(paths: &[PathBuf]) {
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(path) = paths.get(next.fetch_add(1, Ordering::Relaxed)) {
            let _ = PathUsage::once_stored(path);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..paths.len().min(SYNCS) {
            scope.spawn(work);
        }
    });
}

fn is_settling(path: &Path) -> Result<bool, Failure> {
    match ask(path, "state") {
        Ok(state) => Ok(state.as_deref() == Some("settling")),
        Err(failure) if failure.status == exit::NO_INPUT => Ok(false),
        Err(failure) => Err(failure),
    }
}

/// The outcome of a request; none for a file that is gone.
fn outcome(path: &Path) -> Result<Option<String>, Failure> {
    match ask(path, "outcome") {
        Err(failure) if failure.status == exit::NO_INPUT => Ok(None),
        other => other,
    }
}

/// A number that the file system reports; 0 for a file that is gone.
fn figure(path: &Path, name: &str) -> Result<u64, Failure> {
    match ask(path, name) {
        Ok(text) => Ok(text.and_then(|text| text.parse().ok()).unwrap_or(0)),
        Err(failure) if failure.status == exit::NO_INPUT => Ok(0),
        Err(failure) => Err(failure),
    }
}

impl Summary {
    fn count(&mut self, file: &SettleRequest) {
        self.files += 1;
        self.raw += file.raw;
        self.stored_before += file.before;
    }

    fn is_busy(&mut self, path: &Path) {
        self.busy += 1;
        self.note(path, exit::BUSY, "it is being written");
    }

    fn has_failed(&mut self, path: &Path, error: &str) {
        self.failed += 1;
        self.note(path, exit::IO, error);
    }

    fn note(&mut self, path: &Path, status: u8, message: &str) {
        self.problems.push(Problem {
            path: Some(report::name(path)),
            offset: None,
            message: message.to_owned(),
            status,
        });
    }

    /// Waits until none of the files is being settled, and counts the outcomes. `false` when
    /// interrupted.
    fn wait(
        &mut self,
        what: &'static str,
        asked: &[SettleRequest],
        interrupted: impl Fn() -> bool,
    ) -> Result<bool, Failure> {
        let mut progress = Progress::of(what);
        let total = asked.iter().map(|file| file.raw).sum();
        let (mut done, mut stored) = (0, 0);
        for file in asked {
            while is_settling(&file.path)? {
                if interrupted() {
                    return Ok(false);
                }
                let part = figure(&file.path, "progress")?.min(file.raw);
                progress.update(done + part, total);
                std::thread::sleep(POLL);
            }
            done += file.raw;
            match outcome(&file.path)?.as_deref() {
                Some("busy") => self.is_busy(&file.path),
                Some("cancelled") => self.cancelled += 1,
                Some(failed) if failed.starts_with("failed") => {
                    self.has_failed(&file.path, failed.trim_start_matches("failed: "));
                }
                _ => {
                    self.count(file);
                    stored += figure(&file.path, "stored")?;
                }
            }
        }
        self.stored_after = Some(stored);
        Ok(true)
    }

    fn text(&self) -> String {
        let mut text = match self.stored_after {
            Some(after) => format!(
                "{}, {} raw: {} stored before, {} now ({})\n",
                files(self.files),
                size::human(self.raw),
                size::human(self.stored_before),
                size::human(after),
                size::human_ratio(self.raw, after)
            ),
            None => format!(
                "{}, {} raw, to be settled\n",
                files(self.files),
                size::human(self.raw)
            ),
        };
        if self.cancelled > 0 {
            text.push_str(&format!("{} cancelled\n", files(self.cancelled)));
        }
        let of = |status: u8| {
            let problems = self.problems.iter().filter(move |it| it.status == status);
            problems.map(|it| (it.path.as_deref().unwrap_or_default(), it.message.as_str()))
        };
        if self.busy > 0 {
            let what = format!("{} being written, skipped", files(self.busy));
            let lines: Vec<String> = of(exit::BUSY).map(|(path, _)| path.to_owned()).collect();
            text.push_str(&list(&what, &lines));
        }
        if self.failed > 0 {
            let lines = of(exit::IO).map(|(path, error)| format!("{path}: {error}"));
            let what = format!("{} could not be settled", files(self.failed));
            text.push_str(&list(&what, &lines.collect::<Vec<_>>()));
        }
        text
    }
}

fn files(count: usize) -> String {
    counted(count as u64, "file", "files")
}

/// A line, and below it some names, one line each.
fn list(what: &str, lines: &[String]) -> String {
    let mut text = format!("{what}:\n");
    for line in lines.iter().take(SHOWN) {
        text.push_str(&format!("  {}\n", one_line(line)));
    }
    if lines.len() > SHOWN {
        text.push_str(&format!("  and {} more\n", lines.len() - SHOWN));
    }
    text
}
