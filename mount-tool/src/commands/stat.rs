//! `shale stat`: asks the file system through its virtual attributes.

mod bars;
mod distinct_paths;
mod figures;
mod render;
mod unmounted;
pub(crate) mod vars;

use std::cmp::Ordering;
use std::ffi::OsStr;
use std::fs::{FileType, Metadata};
use std::io::{self, IsTerminal};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};

use crate::control::{PathUsage, ask, check_place, unreadable};
use crate::output::failure::{Failure, exit};
use crate::output::report;
use crate::output::table::terminal_width;
use crate::system::mountinfo::{Mount, Mounts};
use crate::system::paths;
use crate::system::store_dir::is_store;
use bars::Bars;
use distinct_paths::DistinctPaths;
use figures::{Entry, Figures, Report};
use render::render;

const HELP: &str = "\
Columns:
  raw        bytes as programs see them
  unwritten  bytes in memory that are not stored yet; shown if there are any
  stored     bytes in the store
  ratio      raw bytes / stored bytes, of what is stored
  share      share of the stored bytes, drawn as a bar
  files      number of files, here and below
  state      of a file: writing (not all of it is stored), stored, settling, settled, compact
             (settling would make it smaller by less than 3 %) or incompressible (the same, with
             a ratio below 1.02); of a directory: writing if a file below it is being written
             (null with --json otherwise)

Columns with --vars:
  variable, type, shape   from the file
  raw, stored, ratio      of the bytes of the variable in the file; if a frame holds several
                          variables, its stored bytes are divided by their raw bytes
  transform               how some of its frames are encoded

Exit status:
  0 shown, 64 wrong usage, 66 neither in a ShaleFS mount nor a store, 74 I/O error, 75 the file
  changes too often (--vars) or the store is in use elsewhere, 77 no permission

Examples:
  shale stat                          the current directory
  shale stat ~/data
  shale stat --sort stored --reverse ~/data
  shale stat --summary ~/data/run1 ~/data/run2
  shale stat --vars ~/data/run1/history.nc
  shale stat /lustre/me/store         a store that is not mounted
  shale stat --json ~/data/run1/history.nc";

#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct StatArgs {
    /// Print JSON, sizes in bytes
    #[arg(long)]
    pub(crate) json: bool,
    /// Print one line for each PATH, even for directories
    #[arg(short, long)]
    pub(crate) summary: bool,
    /// Show the variables of each PATH, which must be a file of a known format
    #[arg(long, conflicts_with = "summary")]
    pub(crate) vars: bool,
    /// Sort the entries of a directory, or variables; numbers in ascending order
    #[arg(long, value_enum, value_name = "ORDER", default_value_t = Order::Name)]
    pub(crate) sort: Order,
    /// Reverse the order
    #[arg(short, long)]
    pub(crate) reverse: bool,
    /// Draw the share of stored bytes even if the output is not a terminal
    #[arg(long, conflicts_with = "no_bars")]
    pub(crate) bars: bool,
    /// Do not draw the share of stored bytes
    #[arg(long)]
    pub(crate) no_bars: bool,
    /// Files and directories in a ShaleFS mount, or stores that are not mounted
    #[arg(value_name = "PATH", default_value = ".")]
    pub(crate) paths: Vec<PathBuf>,
}

/// What to sort by. For variables, `name` is the order of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Order {
    #[default]
    Name,
    Raw,
    Stored,
    Ratio,
    Files,
}

impl Order {
    /// Compares two lines. Equal ones keep their order.
    fn compare(self, a: &Figures, b: &Figures) -> Ordering {
        let ratio = |figures: &Figures| figures.ratio.unwrap_or(0.0);
        match self {
            Self::Name => Ordering::Equal,
            Self::Raw => a.raw.cmp(&b.raw),
            Self::Stored => a.stored.cmp(&b.stored),
            Self::Ratio => ratio(a).total_cmp(&ratio(b)),
            Self::Files => a.files.cmp(&b.files),
        }
    }
}

pub(crate) fn run(args: &StatArgs) -> Result<ExitCode, Failure> {
    let bars =
        Bars::wanted(args.bars || (!args.no_bars && !args.json && io::stdout().is_terminal()));
    if args.vars {
        return vars::run(args, bars);
    }
    let mut report = examine(&args.paths, args.summary, args.json)?;
    for children in report
        .entries
        .iter_mut()
        .filter_map(|e| e.children.as_mut())
    {
        let figures = |entry: &Entry| entry.figures.unwrap_or_default();
        children.sort_by(|a, b| args.sort.compare(&figures(a), &figures(b)));
        if args.reverse {
            children.reverse();
        }
    }
    if args.json {
        report::print_json("stat", &report)?;
    } else {
        report::print(&render(&report, bars, terminal_width()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// `codecs` reads from every file; only JSON shows them.
fn examine(paths: &[PathBuf], summary: bool, codecs: bool) -> Result<Report, Failure> {
    let mut entries = Vec::new();
    let mut places = DistinctPaths::default();
    for path in paths {
        let metadata = std::fs::metadata(path).map_err(|e| unreadable(path, &e))?;
        places.add(path, &metadata);
        if is_unmounted_store(path, &metadata)? {
            entries.push(unmounted::examine(path, summary)?);
            continue;
        }
        check_place(path)?;
        // Before the whole, so that the parts never add up to more when files grow meanwhile.
        let children = if metadata.is_dir() && !summary {
            Some(children(path, codecs)?)
        } else {
            None
        };
        entries.push(Entry {
            children,
            ..entry(path, path.as_os_str(), metadata.file_type(), codecs)?
        });
    }
    let counted = places.counted();
    let once = entries.iter().zip(counted).filter(|(_, counted)| *counted);
    let total = Figures::sum(once.filter_map(|(entry, _)| entry.figures));
    Ok(Report { entries, total })
}

fn is_unmounted_store(path: &Path, metadata: &Metadata) -> Result<bool, Failure> {
    let absolute = paths::absolute(path).map_err(|e| unreadable(path, &e))?;
    let mounts = Mounts::read()?;
    let in_mount = mounts.holding(&absolute).is_some_and(Mount::is_shale);
    Ok(metadata.is_dir() && !in_mount && mounts.of_store(&absolute).is_none() && is_store(path))
}

fn children(directory: &Path, codecs: bool) -> Result<Vec<Entry>, Failure> {
    let mut children = Vec::new();
    for child in std::fs::read_dir(directory).map_err(|e| unreadable(directory, &e))? {
        let child = child.map_err(|e| unreadable(directory, &e))?;
        let path = child.path();
        let file_type = child.file_type().map_err(|e| unreadable(&path, &e))?;
        match entry(&path, &child.file_name(), file_type, codecs) {
            Ok(entry) => children.push(entry),
            Err(failure) if failure.status == exit::NO_PERMISSION => {
                let state = Some("no permission".to_owned());
                children.push(Entry {
                    state,
                    ..without_figures(&child.file_name(), file_type)
                });
            }
            // Removed meanwhile.
            Err(failure) if failure.status == exit::NO_INPUT && is_gone(&path) => {}
            Err(failure) => return Err(failure),
        }
    }
    children.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(children)
}

fn is_gone(path: &Path) -> bool {
    path.symlink_metadata()
        .is_err_and(|e| e.kind() == io::ErrorKind::NotFound)
}

fn without_figures(name: &OsStr, file_type: FileType) -> Entry {
    Entry {
        path: report::name(name),
        kind: kind(file_type),
        figures: None,
        state: None,
        codecs: None,
        children: None,
    }
}

fn entry(path: &Path, name: &OsStr, file_type: FileType, codecs: bool) -> Result<Entry, Failure> {
    // The kernel allows these attributes only on files and directories.
    if !file_type.is_file() && !file_type.is_dir() {
        check_place(path)?;
        return Ok(without_figures(name, file_type));
    }
    let taken = PathUsage::of(path)?;
    let codecs = if codecs && file_type.is_file() {
        ask(path, "codecs")?
    } else {
        None
    };
    Ok(Entry {
        figures: Some(Figures::from(&taken.figures)),
        state: state(file_type, taken.state),
        codecs,
        ..without_figures(name, file_type)
    })
}

/// Directories do not settle. Their only state is that data below them is being written.
fn state(file_type: FileType, state: String) -> Option<String> {
    (!file_type.is_dir() || state == "writing").then_some(state)
}

fn kind(file_type: FileType) -> &'static str {
    if file_type.is_file() {
        "file"
    } else if file_type.is_dir() {
        "directory"
    } else if file_type.is_symlink() {
        "symlink"
    } else if file_type.is_fifo() {
        "fifo"
    } else if file_type.is_socket() {
        "socket"
    } else {
        "device"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::size;

    #[test]
    fn a_directory_does_not_wait_for_being_settled() {
        let of = |path: &Path, text: &str| {
            let file_type = path.metadata().unwrap().file_type();
            state(file_type, text.to_owned())
        };
        let dir = tempfile::tempdir().unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(of(dir.path(), "stored"), None);
        assert_eq!(of(dir.path(), "writing").as_deref(), Some("writing"));
        for text in ["stored", "settled", "writing"] {
            assert_eq!(of(file.path(), text).as_deref(), Some(text));
        }
    }

    #[test]
    fn lines_are_sorted_by_any_column() {
        let figures = |raw, stored, files| Figures {
            raw,
            stored,
            ratio: size::ratio(raw, stored),
            files,
            ..Figures::default()
        };
        let (a, b) = (figures(10, 5, 3), figures(8, 2, 9));
        for (order, expected) in [
            (Order::Name, Ordering::Equal),
            (Order::Raw, Ordering::Greater),
            (Order::Stored, Ordering::Greater),
            (Order::Ratio, Ordering::Less),
            (Order::Files, Ordering::Less),
        ] {
            assert_eq!(order.compare(&a, &b), expected, "{order:?}");
        }
    }

    #[test]
    fn a_path_elsewhere_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let failure = examine(&[dir.path().to_owned()], false, false).unwrap_err();
        assert_eq!(failure.status, exit::NO_INPUT);
        assert!(
            failure.message().contains("not in a ShaleFS mount"),
            "{failure}"
        );
        let failure = examine(&[dir.path().join("none")], false, false).unwrap_err();
        assert_eq!(failure.status, exit::NO_INPUT);
    }
}
