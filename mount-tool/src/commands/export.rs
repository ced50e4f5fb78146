//! `shale export`: copies the tree of any [source](source::Source) to an ordinary directory.
//!
//! ```text
//! source     what is copied          mounted   files below a mount
//!                                    stored    a store that is not mounted
//! tree       walks, and decides for each name: copy, link, keep, refuse
//! copy       the contents of one file: temporary name, compare, rename
//! attributes owner, permissions, extended attributes, times
//! ```

mod attributes;
mod copy;
mod mounted;
mod source;
mod stored;
mod tree;

use std::fmt::Write;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use crate::control;
use crate::output::failure::{Failure, exit};
use crate::output::progress::Progress;
use crate::output::report::{self, counted, printable};
use crate::output::size;
use crate::system::mountinfo::Mounts;
use crate::system::paths;
use crate::system::store_dir;
use mounted::MountSource;
use source::{Kind, Source};
use stored::StoreSource;
use tree::{ExportOptions, Report};

const HELP: &str = "\
Keeps times, permissions, extended attributes, access control lists, hard and symbolic links and
holes, and owners if root exports. Policies (user.shale.*) are not copied. Each file is written
under a temporary name, made durable, read back, compared, and renamed. Run the same command again
to resume an interrupted export: files with the same size and time are kept. A salvaged file has
the time of its copy, so it is never taken for the whole file; --force replaces it.

A store that is not mounted is read without FUSE and without writing to it. Through a mount, cp and
rsync work as well.

Exit status:
  0 everything is copied, 64 wrong usage, 66 neither in a mount nor a store, 73 an existing file
  is in the way, 74 I/O error or damaged data, 75 the store is in use or a file changed,
  77 no permission

Examples:
  shale export ~/data/run1 /scratch/run1           a directory of a mount
  shale export ~/data/run1/history.nc /scratch     a file, into a directory
  shale export /lustre/me/store /scratch/all       all of a store that is not mounted
  shale export --only run1 /lustre/me/store /scratch/run1";

/// The arguments.
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct ExportArgs {
    /// Replace files in DEST that differ
    #[arg(short, long)]
    force: bool,
    /// Copy only this file or directory below SRC
    #[arg(long, value_name = "PATH")]
    only: Option<PathBuf>,
    /// Copy damaged files too, with zeros for what cannot be read
    #[arg(long)]
    salvage: bool,
    /// Print JSON, sizes in bytes
    #[arg(long)]
    json: bool,
    /// A file or directory in a mount, or a store that is not mounted
    #[arg(value_name = "SRC")]
    source: PathBuf,
    /// Target; the contents of a directory go into an existing directory of that name
    #[arg(value_name = "DEST")]
    target: PathBuf,
}

pub(crate) fn run(args: &ExportArgs) -> Result<ExitCode, Failure> {
    let mut report = if is_store(&args.source)? {
        let store = paths::absolute(&args.source).map_err(|e| unreadable(&args.source, &e))?;
        let only = below(args.only.as_deref().unwrap_or(Path::new("")))?;
        let stored = StoreSource::open(&store, &only).map_err(|f| mounted_where(f, &store))?;
        let name = only.file_name();
        export(&stored, name.map(Path::new), args)?
    } else {
        let path = match &args.only {
            Some(only) => args.source.join(below(only)?),
            None => args.source.clone(),
        };
        let top = std::fs::canonicalize(&path).map_err(|e| unreadable(&path, &e))?;
        if control::check_place(&top).is_err() {
            return Err(control::neither(&path));
        }
        let name = top.file_name().map(PathBuf::from);
        export(&MountSource::new(top), name.as_deref(), args)?
    };
    if args.json {
        report.path = report::name(&args.source);
        report.target = report::name(&args.target);
        report::print_json("export", &report)?;
    } else {
        report::print(&render(&report, &args.target))?;
    }
    Ok(ExitCode::from(status(&report)))
}

/// The argument of `--only`: a path below SRC, with or without a leading slash.
fn below(only: &Path) -> Result<PathBuf, Failure> {
    let mut path = PathBuf::new();
    for step in only.components() {
        match step {
            Component::Normal(name) => path.push(name),
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => {
                return Err(Failure::new(
                    exit::USAGE,
                    format_args!("{} leads out of SRC; give a path below it", only.display()),
                ));
            }
        }
    }
    Ok(path)
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    Failure::io("export", path, error)
}

/// A directory with a superblock. In a mount this is a copy of a store, and an ordinary directory.
fn is_store(path: &Path) -> Result<bool, Failure> {
    let metadata = std::fs::metadata(path).map_err(|e| unreadable(path, &e))?;
    if !metadata.is_dir() || control::check_place(path).is_ok() {
        return Ok(false);
    }
    match path.join(store_dir::SUPERBLOCK).symlink_metadata() {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => Err(unreadable(path, &e)),
        found => Ok(found.is_ok()),
    }
}

/// The store that contains a path. Foreign files in a store would be in the way of its daemon.
fn store_around(path: &Path) -> Option<&Path> {
    path.ancestors()
        .skip(1)
        .find(|above| is_store(above).unwrap_or(false))
}

/// Names the mount of a store that is in use.
fn mounted_where(failure: Failure, store: &Path) -> Failure {
    let mounts = Mounts::read().unwrap_or_default();
    match mounts.of_store(store) {
        Some(mount) if failure.status == exit::BUSY => Failure::new(
            exit::BUSY,
            format_args!(
                "{0} is mounted on {1}; export from there: 'shale export {1} ...'",
                store.display(),
                mount.mountpoint.display()
            ),
        ),
        _ => failure,
    }
}

fn export<S: Source>(
    source: &S,
    name: Option<&Path>,
    args: &ExportArgs,
) -> Result<Report, Failure> {
    let top = source.node(&source.top())?;
    let target = match name {
        Some(name) if top.kind != Kind::Directory && args.target.is_dir() => args.target.join(name),
        _ => args.target.clone(),
    };
    let absolute = paths::absolute(&target)
        .map_err(|e| Failure::io("export to", &target, &e).with_status(exit::CANNOT_CREATE))?;
    if absolute.starts_with(source.place()) {
        return Err(Failure::new(
            exit::CANNOT_CREATE,
            format_args!(
                "{} is inside the directory to export; choose a directory elsewhere",
                target.display()
            ),
        ));
    }
    if let Some(store) = store_around(&absolute) {
        return Err(Failure::new(
            exit::CANNOT_CREATE,
            format_args!(
                "{} is inside the store {}; choose a directory elsewhere",
                target.display(),
                store.display()
            ),
        ));
    }
    let total = tree::measure(source)?;
    let mut progress = Progress::of("exporting");
    let mut done = 0;
    let options = ExportOptions {
        force: args.force,
        salvage: args.salvage,
    };
    tree::export(source, &target, options, &mut |bytes| {
        done += bytes;
        progress.update(done, total);
    })
}

/// The exit status: lost data counts more than files in the way.
fn status(report: &Report) -> u8 {
    let statuses = report.problems.iter().map(|problem| problem.status);
    let rank = |status: &u8| match *status {
        exit::IO => 3,
        exit::NO_PERMISSION => 2,
        exit::BUSY => 1,
        _ => 0,
    };
    statuses.max_by_key(rank).unwrap_or(0)
}

fn render(report: &Report, target: &Path) -> String {
    let mut text = String::new();
    for problem in &report.problems {
        let _ = writeln!(text, "{}", printable(&problem.message));
    }
    if !report.missed_attributes.is_empty() {
        let names: Vec<String> = report
            .missed_attributes
            .iter()
            .map(|name| printable(name))
            .collect();
        let _ = writeln!(
            text,
            "attributes not copied, because the target file system or you may not set them: {}",
            names.join(", ")
        );
    }
    let _ = write!(
        text,
        "{}, {} in {} copied to {} and compared",
        counted(report.files, "file", "files"),
        size::human(report.raw),
        counted(report.directories, "directory", "directories"),
        target.display()
    );
    if report.others > 0 {
        let _ = write!(
            text,
            "; {}",
            counted(report.others, "link or other", "links and others")
        );
    }
    if report.present > 0 {
        let were = counted(report.present, "was", "were");
        let _ = write!(text, "; {were} already there");
    }
    let problems = report.problems.len() as u64;
    if problems > 0 {
        let _ = write!(text, "; {}", counted(problems, "problem", "problems"));
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::report::Problem;

    fn report(statuses: &[u8]) -> Report {
        let problem = |&status: &u8| Problem {
            path: Some("/d/x".to_owned()),
            offset: None,
            status,
            message: format!("problem {status}"),
        };
        Report {
            files: 2,
            raw: 3 << 20,
            directories: 1,
            problems: statuses.iter().map(problem).collect(),
            ..Report::default()
        }
    }

    #[test]
    fn the_worst_problem_decides() {
        assert_eq!(status(&report(&[])), 0);
        assert_eq!(status(&report(&[73])), 73);
        assert_eq!(status(&report(&[73, 74, 73, 77])), 74);
    }

    #[test]
    fn the_summary_says_what_is_where() {
        let text = render(&report(&[]), Path::new("/d"));
        assert_eq!(
            text,
            "2 files, 3.00 MiB in 1 directory copied to /d and compared\n"
        );
        let mut report = report(&[73]);
        report.present = 4;
        report.others = 1;
        report.missed_attributes.insert("trusted.x".to_owned());
        assert_eq!(
            render(&report, Path::new("/d")),
            "problem 73\n\
             attributes not copied, because the target file system or you may not set them: \
             trusted.x\n\
             2 files, 3.00 MiB in 1 directory copied to /d and compared; 1 link or other; 4 were \
             already there; 1 problem\n"
        );
    }
}
