//! `shale fsck`

use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use shale_store::fsck::{FsckOptions, FsckReport, fsck};

use crate::output::failure::{Failure, fsck_exit};
use crate::output::progress::Progress;
use crate::output::report::{self, Problem, counted, printable};
use crate::system::paths;
use crate::system::store_dir;

const HELP: &str = "\
Exit status, as fsck(8):
  0 clean, 1 problems repaired, 4 problems left, 8 could not check, 16 wrong usage

Examples:
  shale fsck /lustre/me/store
  shale fsck --repair /lustre/me/store      repair what can be repaired without loss
  shale fsck --rebuild /lustre/me/store     recover names and contents from the packs";

#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct FsckArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Repair what can be repaired without loss: the second copy of the index (the catalog) and the
    /// directories of packs
    #[arg(long)]
    pub(crate) repair: bool,
    /// Rebuild the index from the packs, and repair the rest
    #[arg(long)]
    pub(crate) rebuild: bool,
    /// Directory that holds the data
    pub(crate) store: PathBuf,
}

pub(crate) fn run(args: &FsckArgs) -> Result<ExitCode, Failure> {
    check_place(&args.store, args.rebuild)?;
    let report = {
        let mut progress = Progress::of("checking");
        let options = FsckOptions {
            repair: args.repair,
            rebuild: args.rebuild,
        };
        fsck(&args.store, &options, &mut |done, total| {
            progress.update(done, total)
        })
        .map_err(|e| Failure::new(fsck_exit::OPERATIONAL, e))?
    };
    let printed = if args.json {
        report::print_json("fsck", &CheckReport::new(&args.store, &report))
    } else {
        report::print(&render(&report, &args.store))
    };
    printed.map_err(|failure| failure.with_status(fsck_exit::OPERATIONAL))?;
    Ok(ExitCode::from(status(&report)))
}

/// The result, as JSON.
#[derive(Debug, Serialize)]
struct CheckReport {
    path: String,
    files: u64,
    directories: u64,
    packs: u64,
    frames: u64,
    /// Bytes of these frames.
    stored: u64,
    /// Bytes in packs that nothing refers to.
    garbage: u64,
    problems: Vec<Problem>,
}

impl CheckReport {
    fn new(store: &Path, report: &FsckReport) -> Self {
        let problem = |found: &shale_store::fsck::Problem| Problem {
            path: found.file.clone(),
            offset: found.offset,
            message: found.what.clone(),
            status: if found.repaired {
                fsck_exit::REPAIRED
            } else {
                fsck_exit::UNREPAIRED
            },
        };
        Self {
            path: report::name(store),
            files: report.files,
            directories: report.dirs,
            packs: report.packs,
            frames: report.frames,
            stored: report.frame_bytes,
            garbage: report.garbage_bytes,
            problems: report.problems.iter().map(problem).collect(),
        }
    }
}

fn check_place(store: &Path, rebuild: bool) -> Result<(), Failure> {
    let refuse = |message: String| Err(Failure::new(fsck_exit::OPERATIONAL, message));
    let metadata = paths::metadata(store).map_err(|e| Failure::io("check store", store, &e))?;
    if !metadata.is_dir() {
        return refuse(format!(
            "{} is not a directory; give the store",
            store.display()
        ));
    }
    match std::fs::metadata(store.join(store_dir::SUPERBLOCK)) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            Err(Failure::io("check store", store, &e))
        }
        // A rebuild works without a superblock.
        Err(_) if !rebuild => refuse(format!(
            "{} is not a ShaleFS store: it has no superblock; give the store, not the mount point",
            store.display()
        )),
        _ => Ok(()),
    }
}

fn status(report: &FsckReport) -> u8 {
    if report.problems.iter().any(|problem| !problem.repaired) {
        fsck_exit::UNREPAIRED
    } else if report.problems.is_empty() {
        0
    } else {
        fsck_exit::REPAIRED
    }
}

/// One line for each problem, then the verdict.
fn render(report: &FsckReport, store: &Path) -> String {
    let mut text = String::new();
    for problem in &report.problems {
        let mut line = printable(&problem.what);
        if let Some(file) = &problem.file {
            let _ = write!(line, ": {}", printable(file));
        }
        if let Some(offset) = problem.offset {
            let _ = write!(line, " at offset {offset}");
        }
        if problem.repaired {
            line.push_str(" (repaired)");
        }
        let _ = writeln!(text, "{line}");
    }
    let left = report
        .problems
        .iter()
        .filter(|problem| !problem.repaired)
        .count();
    let repaired = report.problems.len() - left;
    let store = store.display();
    let problems = |count: usize| counted(count as u64, "problem", "problems");
    let _ = match (left, repaired) {
        (0, 0) => writeln!(text, "{store}: clean"),
        (0, _) => writeln!(text, "{store}: {} repaired", problems(repaired)),
        (_, 0) => writeln!(text, "{store}: {} left", problems(left)),
        _ => writeln!(
            text,
            "{store}: {} left, {repaired} repaired",
            problems(left)
        ),
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use shale_store::fsck::Problem;

    fn report(repaired: &[bool]) -> FsckReport {
        let problem = |&repaired: &bool| Problem {
            what: "checksum differs".to_owned(),
            file: Some("run/a\nb.nc".to_owned()),
            offset: Some(1 << 20),
            repaired,
        };
        FsckReport {
            problems: repaired.iter().map(problem).collect(),
            ..FsckReport::default()
        }
    }

    #[test]
    fn exit_codes_are_those_of_fsck() {
        assert_eq!(status(&report(&[])), 0);
        assert_eq!(status(&report(&[true, true])), 1);
        assert_eq!(status(&report(&[true, false])), 4);
    }

    #[test]
    fn a_problem_names_file_and_offset() {
        let text = render(&report(&[true, false]), Path::new("/s"));
        let expected = "\
checksum differs: run/a\\nb.nc at offset 1048576 (repaired)
checksum differs: run/a\\nb.nc at offset 1048576
/s: 1 problem left, 1 repaired
";
        assert_eq!(text, expected);
        assert_eq!(render(&report(&[]), Path::new("/s")), "/s: clean\n");
    }
}
