//! `shale stat`: asks the file system through its virtual attributes.

mod bars;
mod unmounted;
pub(crate) mod vars;

use std::cmp::Ordering;
use std::ffi::OsStr;
use std::fs::{FileType, Metadata};
use std::io::{self, IsTerminal};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::attributes::{Taken, ask, check_place, unreadable};
use crate::backend::is_store;
use crate::failure::{Failure, exit};
use crate::mountinfo::{Mount, Mounts};
use crate::paths;
use crate::report::{self, Align, Keep, Table, printable};
use crate::size;
use bars::Bars;

const STAT_HELP: &str = "\
Columns:
  raw        bytes as programs see them
  unwritten  those of them in memory that are not stored yet; shown where there are any
  stored     bytes in the store
  ratio      of what is stored: its raw bytes / stored
  share      of the stored bytes, drawn as a bar
  files      files, here and below
  state      of a file: writing (not all of it is stored), stored, settling, settled, compact
             (settling would make it smaller by less than 3 %) or incompressible (the same, with
             a ratio below 1.02); of a directory, only that something in it is being written
             (null with --json otherwise)

Columns with --vars:
  variable, type, shape   as the file says
  raw, stored, ratio      of the bytes of the variable in the file; where a frame holds several
                          variables, its stored bytes are shared out by their raw bytes
  transform               how some of its frames are made

Exit status:
  0 shown, 64 wrong usage, 66 neither in a ShaleFS mount nor a store, 74 I/O error, 75 the file
  changes too often (--vars) or the store is in use elsewhere, 77 no permission

Examples:
  shale stat                          the directory where one is
  shale stat ~/data
  shale stat --sort stored --reverse ~/data
  shale stat --summary ~/data/run1 ~/data/run2
  shale stat --vars ~/data/run1/history.nc
  shale stat /lustre/me/store         a store that is not mounted
  shale stat --json ~/data/run1/history.nc";

#[derive(Args, Debug)]
#[command(after_help = STAT_HELP)]
pub(crate) struct StatArgs {
    /// Print JSON, sizes in bytes
    #[arg(long)]
    pub(crate) json: bool,
    /// One line for each PATH, also for directories
    #[arg(short, long)]
    pub(crate) summary: bool,
    /// The variables of each PATH, which must be a file of a format that is understood
    #[arg(long, conflicts_with = "summary")]
    pub(crate) vars: bool,
    /// Order of what is in a directory, or of variables; numbers ascend
    #[arg(long, value_enum, value_name = "ORDER", default_value_t = Order::Name)]
    pub(crate) sort: Order,
    /// The other way round
    #[arg(short, long)]
    pub(crate) reverse: bool,
    /// Draw the share of stored bytes also when the output is not a terminal
    #[arg(long, conflicts_with = "no_bars")]
    pub(crate) bars: bool,
    /// Do not draw the share of stored bytes
    #[arg(long)]
    pub(crate) no_bars: bool,
    /// Files and directories in a ShaleFS mount, or stores that are not mounted
    #[arg(value_name = "PATH", default_value = ".")]
    pub(crate) paths: Vec<PathBuf>,
}

/// What to sort by. Variables keep the order of the file by default, which is `name` for them.
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
    /// Compares two lines; those that are equal keep their order.
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
        report::print(&render(&report, bars, report::terminal_width()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Figures of one path: its own, or of everything below a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
struct Figures {
    raw: u64,
    stored: u64,
    /// Bytes of `raw` that `stored` stands for.
    stored_raw: u64,
    /// Bytes in memory that are not stored yet.
    unwritten: u64,
    /// `stored_raw` / `stored`, none when either is 0.
    ratio: Option<f64>,
    files: u64,
    #[serde(rename = "directories")]
    dirs: u64,
}

#[derive(Debug, PartialEq, Serialize)]
struct Entry {
    path: String,
    kind: &'static str,
    /// None for what holds no data, or may not be asked.
    #[serde(flatten)]
    figures: Option<Figures>,
    state: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    codecs: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    children: Option<Vec<Entry>>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Report {
    entries: Vec<Entry>,
    total: Figures,
}

/// Codecs cost a look into every file, and tables do not show them.
fn examine(paths: &[PathBuf], summary: bool, codecs: bool) -> Result<Report, Failure> {
    let mut entries = Vec::new();
    let mut places = Places::default();
    for path in paths {
        let metadata = std::fs::metadata(path).map_err(|e| unreadable(path, &e))?;
        places.add(path, &metadata);
        if is_unmounted_store(path, &metadata)? {
            entries.push(unmounted::examine(path, summary)?);
            continue;
        }
        check_place(path)?;
        // Before the whole, so that files that grow meanwhile do not make the parts add up to
        // more.
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

/// Where paths are, so that what one of them stands for is not counted with another again.
#[derive(Debug, Default)]
struct Places(Vec<Place>);

#[derive(Debug)]
struct Place {
    id: FileId,
    /// The directories that it is in.
    above: Vec<FileId>,
}

/// Device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileId(u64, u64);

impl From<&Metadata> for FileId {
    fn from(metadata: &Metadata) -> Self {
        Self(metadata.dev(), metadata.ino())
    }
}

impl Places {
    fn add(&mut self, path: &Path, metadata: &Metadata) {
        let whole = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let above = whole.ancestors().skip(1);
        let above = above.filter_map(|path| Some(FileId::from(&path.metadata().ok()?)));
        self.0.push(Place {
            id: metadata.into(),
            above: above.collect(),
        });
    }

    /// For each path whether it counts: it is not in one of the others, and comes the first time.
    fn counted(&self) -> Vec<bool> {
        let counts = |(number, place): (usize, &Place)| {
            let before = &self.0[..number];
            !before.iter().any(|other| other.id == place.id)
                && !self.0.iter().any(|other| place.above.contains(&other.id))
        };
        self.0.iter().enumerate().map(counts).collect()
    }
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
            // Removed while we look: it is simply not there any more.
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
    // The kernel lets only files and directories have attributes of this kind.
    if !file_type.is_file() && !file_type.is_dir() {
        check_place(path)?;
        return Ok(without_figures(name, file_type));
    }
    let taken = Taken::of(path)?;
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

/// Directories do not settle: of them, only what is on its way is told.
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

impl From<&shale_store::Taken> for Figures {
    fn from(taken: &shale_store::Taken) -> Self {
        Self {
            raw: taken.raw,
            stored: taken.stored,
            stored_raw: taken.stored_raw,
            unwritten: taken.unwritten,
            ratio: size::ratio(taken.stored_raw, taken.stored),
            files: taken.files,
            dirs: taken.dirs,
        }
    }
}

impl Figures {
    fn sum(all: impl Iterator<Item = Self>) -> Self {
        let mut sum = Self::default();
        for figures in all {
            sum.raw = sum.raw.saturating_add(figures.raw);
            sum.stored = sum.stored.saturating_add(figures.stored);
            sum.stored_raw = sum.stored_raw.saturating_add(figures.stored_raw);
            sum.unwritten = sum.unwritten.saturating_add(figures.unwritten);
            sum.files = sum.files.saturating_add(figures.files);
            sum.dirs = sum.dirs.saturating_add(figures.dirs);
        }
        sum.ratio = size::ratio(sum.stored_raw, sum.stored);
        sum
    }
}

/// Said below a table that is about to change.
const WRITING: &str = "\nWhat is unwritten will be stored in some seconds; ratios are of what is \
                       stored.\n";

impl Entry {
    /// Its name in a table.
    fn shown(&self) -> String {
        let mut name = printable(&self.path);
        if matches!(self.kind, "directory" | "store") && !name.ends_with('/') {
            name.push('/');
        }
        name
    }

    /// Its state, or what it is where it has none.
    fn note(&self) -> &str {
        self.state.as_deref().unwrap_or(match self.kind {
            "file" | "directory" | "store" => "",
            kind => kind,
        })
    }

    /// Whether something of it, or of what is listed in it, is not stored yet.
    fn is_unwritten(&self) -> bool {
        self.figures.is_some_and(|figures| figures.unwritten > 0)
            || self.children.iter().flatten().any(Self::is_unwritten)
    }
}

/// The table, no wider than a terminal. Bars are left out where they leave no room for names.
fn render(report: &Report, bars: Bars, terminal: Option<usize>) -> String {
    let unwritten = report.entries.iter().any(Entry::is_unwritten);
    let mut columns = vec![("path", Align::Left), ("raw", Align::Right)];
    if unwritten {
        columns.push(("unwritten", Align::Right));
    }
    columns.extend([("stored", Align::Right), ("ratio", Align::Right)]);
    if bars != Bars::None {
        columns.push(("share", Align::Left));
    }
    columns.extend([("files", Align::Right), ("state", Align::Left)]);
    let mut table = Table::new(&columns);
    let mut line = |name: String, figures: Option<&Figures>, of: u64, state: &str| {
        let cell = |text: fn(&Figures) -> String| figures.map_or_else(|| "-".to_owned(), text);
        let mut cells = vec![name, cell(|figures| size::human(figures.raw))];
        if unwritten {
            cells.push(cell(|figures| size::human(figures.unwritten)));
        }
        cells.push(cell(|figures| size::human(figures.stored)));
        cells.push(cell(|figures| {
            size::human_ratio(figures.stored_raw, figures.stored)
        }));
        if bars != Bars::None {
            cells.push(bars.draw(figures.map(|figures| figures.stored), of));
        }
        cells.push(cell(|figures| figures.files.to_string()));
        cells.push(printable(state));
        table.row(cells);
    };
    let several = report.entries.len() > 1;
    for entry in &report.entries {
        let all = entry.figures.map_or(0, |figures| figures.stored);
        for child in entry.children.iter().flatten() {
            line(child.shown(), child.figures.as_ref(), all, child.note());
        }
        let of = if several { report.total.stored } else { all };
        line(entry.shown(), entry.figures.as_ref(), of, entry.note());
    }
    if several {
        let total = &report.total;
        line("total".to_owned(), Some(total), total.stored, "");
    }
    let cuts = [(0, Keep::End)];
    let table = table.fit(terminal, &cuts);
    if bars != Bars::None && terminal.is_some_and(|terminal| table.width() > terminal) {
        return render(report, Bars::None, terminal);
    }
    let mut text = table.render();
    if unwritten {
        text.push_str(WRITING);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(path: &str, kind: &'static str, raw: u64, stored: u64, files: u64) -> Entry {
        let figures = Figures {
            raw,
            stored,
            stored_raw: raw,
            unwritten: 0,
            ratio: size::ratio(raw, stored),
            files,
            dirs: 0,
        };
        let figures = (kind != "symlink").then_some(figures);
        let state = (kind == "file").then(|| "settled".to_owned());
        Entry {
            path: path.to_owned(),
            kind,
            figures,
            state,
            codecs: None,
            children: None,
        }
    }

    fn report() -> Report {
        let mut directory = sample("/mnt/run", "directory", 3 << 20, 2 << 20, 2);
        directory.children = Some(vec![
            sample("a\n.nc", "file", 3 << 20, 2 << 20, 1),
            sample("empty", "file", 0, 0, 1),
            sample("link", "symlink", 0, 0, 0),
        ]);
        let file = sample("/mnt/b.nc", "file", 1 << 20, 1 << 19, 1);
        let total = Figures::sum([directory.figures, file.figures].into_iter().flatten());
        Report {
            entries: vec![directory, file],
            total,
        }
    }

    #[test]
    fn a_directory_lists_its_children_then_itself_then_the_total() {
        let expected = "\
path            raw    stored  ratio  files  state
a\\n.nc     3.00 MiB  2.00 MiB  1.50x      1  settled
empty           0 B       0 B      -      1  settled
link              -         -      -      -  symlink
/mnt/run/  3.00 MiB  2.00 MiB  1.50x      2
/mnt/b.nc  1.00 MiB   512 KiB  2.00x      1  settled
total      4.00 MiB  2.50 MiB  1.60x      3
";
        assert_eq!(render(&report(), Bars::None, None), expected);
    }

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
    fn figures_that_are_about_to_change_are_explained() {
        let mut report = report();
        assert!(!render(&report, Bars::None, None).contains("unwritten"));
        let child = &mut report.entries[0].children.as_mut().unwrap()[0];
        let figures = child.figures.as_mut().unwrap();
        (figures.stored_raw, figures.unwritten) = (2 << 20, 1 << 20);
        let text = render(&report, Bars::None, None);
        let line = "a\\n.nc     3.00 MiB   1.00 MiB  2.00 MiB  1.00x      1  settled\n";
        assert!(text.contains(line), "{text}");
        assert!(text.ends_with(WRITING));
    }

    #[test]
    fn bars_show_the_share_of_the_directory_and_of_all() {
        let text = render(&report(), Bars::Blocks, None);
        let shares: Vec<&str> = text
            .lines()
            .map(|line| line.split("x  ").nth(1).unwrap_or("").trim_end())
            .collect();
        assert!(shares[1].starts_with("██████████  "), "{text}");
        assert!(shares[4].starts_with("████████  "), "{text}");
        assert!(shares[5].starts_with("██  "), "{text}");
        assert!(render(&report(), Bars::Plain, None).contains("##########"));
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
    fn json_has_plain_bytes() {
        let json = serde_json::to_value(report()).unwrap();
        assert_eq!(json["entries"][0]["raw"], 3 << 20);
        assert_eq!(json["entries"][0]["ratio"], 1.5);
        assert_eq!(
            json["entries"][0]["children"][1]["ratio"],
            serde_json::Value::Null
        );
        assert_eq!(json["total"]["files"], 3);
        assert!(json["entries"][1].get("children").is_none());
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
