//! `shale stat --vars`: how much space each variable of a file takes.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde::{Serialize, Serializer};
use shale_store::estimate::Estimator;

use super::StatArgs;
use super::bars::Bars;
use super::figures::Figures;
use crate::control::{PathUsage, ask_now, check_place, stranger, unreadable};
use crate::deflated;
use crate::output::failure::{Failure, exit};
use crate::output::progress::Spinner;
use crate::output::report::{self, printable};
use crate::output::size;
use crate::output::table::{Align, Keep, Table, terminal_width};

/// How long to wait for the reports of other users.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(50);
/// About how many plain bytes of deflated variables are encoded.
const DEFLATED: u64 = 32 << 20;
/// How often a file may change while its report is read.
const CHANGES: usize = 4;

#[derive(Debug, PartialEq, Serialize)]
struct Variable {
    name: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(serialize_with = "lengths")]
    shape: String,
    raw: u64,
    stored: u64,
    ratio: Option<f64>,
    /// How some of its frames are encoded, each with its coders.
    transforms: Vec<String>,
}

/// `41x90x180` as a list of numbers; a scalar has none.
fn lengths<S: Serializer>(shape: &str, serializer: S) -> Result<S::Ok, S::Error> {
    let lengths = shape.split('x').filter_map(|text| text.parse::<u64>().ok());
    serializer.collect_seq(lengths)
}

#[derive(Debug, Default, PartialEq, Serialize)]
struct File {
    path: String,
    kind: &'static str,
    /// All variables and the rest.
    #[serde(flatten)]
    total: Figures,
    format: String,
    /// Whether all of the file was understood and counted.
    complete: bool,
    variables: Vec<Variable>,
    /// Bytes in no variable: headers, indexes, padding.
    rest: Rest,
    /// Data that NetCDF-4 or HDF5 has already deflated.
    deflated: Option<deflated::Report>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
struct Rest {
    raw: u64,
    stored: u64,
    ratio: Option<f64>,
}

impl Rest {
    fn figures(&self) -> Figures {
        figures(self.raw, self.stored)
    }
}

/// All files, as JSON.
#[derive(Debug, Serialize)]
struct Report<'a> {
    entries: &'a [File],
    total: Figures,
}

pub(super) fn run(args: &StatArgs, bars: Bars) -> Result<ExitCode, Failure> {
    let mut files = Vec::new();
    for path in &args.paths {
        let mut file = examine(path)?;
        file.variables
            .sort_by(|a, b| args.sort.compare(&a.figures(), &b.figures()));
        if args.reverse {
            file.variables.reverse();
        }
        files.push(file);
    }
    if args.json {
        let total = Figures::sum(files.iter().map(|file| file.total));
        let entries = &files;
        report::print_json("stat", &Report { entries, total })?;
    } else {
        let width = terminal_width();
        let tables: Vec<String> = files.iter().map(|file| render(file, bars, width)).collect();
        report::print(&tables.join("\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The table of one file, without bars.
pub(crate) fn table(path: &Path) -> Result<String, Failure> {
    let width = terminal_width();
    Ok(render(&examine(path)?, Bars::None, width))
}

fn examine(path: &Path) -> Result<File, Failure> {
    let metadata = std::fs::metadata(path).map_err(|e| unreadable(path, &e))?;
    check_place(path)?;
    if !metadata.is_file() {
        return Err(Failure::new(
            exit::USAGE,
            format_args!("{} is not a file; give files with --vars", path.display()),
        ));
    }
    let _spinner = Spinner::new(format!("looking into {}", report::name(path)));
    // Unwritten data takes no space yet, so ratios would be wrong.
    PathUsage::once_stored(path)?;
    for _ in 0..CHANGES {
        if let Some(mut file) = read(path)? {
            file.deflated = deflated_in(path);
            return Ok(file);
        }
    }
    Err(Failure::new(
        exit::BUSY,
        format_args!(
            "{} keeps changing; try again when no program writes to it",
            path.display()
        ),
    ))
}

/// The deflated data of a file; none if it cannot be read.
fn deflated_in(path: &Path) -> Option<deflated::Report> {
    let file = std::fs::File::open(path).ok()?;
    let layout = shale_layout::parse(&file, &shale_layout::ParseOptions::default());
    let found = deflated::examine(&file, &layout, &mut Estimator::default(), DEFLATED);
    found.ok()?.report()
}

/// Reads all pages; `None` when the file changed between them.
fn read(path: &Path) -> Result<Option<File>, Failure> {
    let mut file = File {
        path: report::name(path),
        kind: "file",
        ..File::default()
    };
    let mut id: Option<String> = None;
    let mut from = 0;
    loop {
        let page = page(path, from)?;
        let strange = || {
            Failure::new(
                exit::SOFTWARE,
                format_args!(
                    "{}: the daemon reports variables in a form that this version of shale does not \
                     know; unmount and mount again",
                    path.display()
                ),
            )
        };
        let head = parse(&page, &mut file).ok_or_else(strange)?;
        if id.get_or_insert_with(|| head.id.clone()) != &head.id {
            return Ok(None);
        }
        match head.next {
            Some(next) if next > from => from = next,
            Some(_) => return Err(strange()),
            None => break,
        }
    }
    let all = file.variables.iter().map(Variable::figures);
    file.total = Figures::sum(all.chain([file.rest.figures()]));
    file.total.files = 1;
    Ok(Some(file))
}

/// The daemon makes one report at a time and answers EAGAIN to other requests.
fn page(path: &Path, from: usize) -> Result<String, Failure> {
    let name = if from == 0 {
        "vars".to_owned()
    } else {
        format!("vars.{from}")
    };
    let begun = Instant::now();
    loop {
        match ask_now(path, &name) {
            Ok(Some(page)) => return Ok(page),
            Ok(None) => return Err(stranger(path)),
            Err(rustix::io::Errno::AGAIN) if begun.elapsed() < PATIENCE => {
                std::thread::sleep(PAUSE);
            }
            Err(e) => return Err(unreadable(path, &e.into())),
        }
    }
}

struct Head {
    id: String,
    next: Option<usize>,
}

/// Adds the variables of a page to a file.
fn parse(page: &str, file: &mut File) -> Option<Head> {
    let (head, lines) = page.split_once('\n').unwrap_or((page, ""));
    let value = |name: &str| {
        head.split('\t')
            .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    };
    if value("vars")? != "1" {
        return None;
    }
    let (raw, stored) = (
        value("rest_raw")?.parse().ok()?,
        value("rest_stored")?.parse().ok()?,
    );
    file.rest = Rest {
        raw,
        stored,
        ratio: size::ratio(raw, stored),
    };
    file.complete = value("complete")? == "yes";
    file.format = value("format")?.to_owned();
    for line in lines.lines() {
        let mut cells = line.split('\t');
        let mut cell = || cells.next();
        let (name, kind, shape) = (cell()?, cell()?, cell()?);
        let (raw, stored) = (cell()?.parse().ok()?, cell()?.parse().ok()?);
        let transforms = cell()?.split(';').filter(|text| !text.is_empty());
        file.variables.push(Variable {
            name: name.to_owned(),
            kind: kind.to_owned(),
            shape: shape.to_owned(),
            raw,
            stored,
            ratio: size::ratio(raw, stored),
            transforms: transforms.map(str::to_owned).collect(),
        });
    }
    Some(Head {
        id: value("id")?.to_owned(),
        next: match value("next")? {
            "-" => None,
            next => Some(next.parse().ok()?),
        },
    })
}

fn figures(raw: u64, stored: u64) -> Figures {
    Figures {
        raw,
        stored,
        stored_raw: raw,
        ratio: size::ratio(raw, stored),
        ..Figures::default()
    }
}

impl Variable {
    fn figures(&self) -> Figures {
        figures(self.raw, self.stored)
    }

    /// Without the coders, which are for machines.
    fn transform(&self) -> String {
        let mut all: Vec<&str> = Vec::new();
        for text in &self.transforms {
            let short = text.split(':').next().unwrap_or_default();
            if !all.contains(&short) {
                all.push(short);
            }
        }
        all.join(", ")
    }
}

fn render(file: &File, bars: Bars, terminal: Option<usize>) -> String {
    let mut columns = vec![
        ("variable", Align::Left),
        ("type", Align::Left),
        ("shape", Align::Left),
        ("raw", Align::Right),
        ("stored", Align::Right),
        ("ratio", Align::Right),
        ("transform", Align::Left),
    ];
    if bars != Bars::None {
        columns.insert(6, ("share", Align::Left));
    }
    let mut table = Table::new(&columns);
    let mut line = |name: String, kind: &str, shape: &str, figures: &Figures, last: String| {
        let mut cells = vec![
            name,
            printable(kind),
            printable(shape),
            size::human(figures.raw),
            size::human(figures.stored),
            size::human_ratio(figures.raw, figures.stored),
            last,
        ];
        if bars != Bars::None {
            cells.insert(6, bars.draw(Some(figures.stored), file.total.stored));
        }
        table.row(cells);
    };
    for variable in &file.variables {
        line(
            printable(&variable.name),
            &variable.kind,
            &variable.shape,
            &variable.figures(),
            printable(&variable.transform()),
        );
    }
    line(
        "(other)".to_owned(),
        "-",
        "-",
        &file.rest.figures(),
        String::new(),
    );
    line("total".to_owned(), "-", "-", &file.total, String::new());
    let cuts = [
        (columns.len() - 1, Keep::Start),
        (0, Keep::End),
        (2, Keep::Start),
    ];
    let table = table.fit(terminal, &cuts);
    if bars != Bars::None && terminal.is_some_and(|terminal| table.width() > terminal) {
        return render(file, Bars::None, terminal);
    }
    let note = match (file.complete, file.format.as_str()) {
        (_, "unknown") => ", a format that is not understood",
        (false, _) => ", not all of which is understood",
        (true, _) => "",
    };
    let format = match file.format.as_str() {
        "unknown" => String::new(),
        format => format!(", {}", printable(format)),
    };
    let mut text = format!(
        "{}{format}{note}\n{}",
        printable(&file.path),
        table.render()
    );
    if let Some(deflated) = &file.deflated {
        text.push_str(&format!("{}\n", deflated.describe()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "vars=1\tid=0a\tvariables=2\tfrom=0\tnext=-\trest_raw=1024\t\
        rest_stored=100\tcomplete=yes\tformat=NetCDF classic (CDF-1)\n\
        wind\tfloat32 big\t41x90x180\t2097152\t1048576\tresiduals decimalx4 plane: raw+rans;\
        residuals decimalx4 plane: rans\n\
        a\\tb\tint8\tscalar\t0\t0\t\n";

    fn file() -> File {
        let mut file = File {
            path: "/mnt/a.nc".to_owned(),
            ..File::default()
        };
        let head = parse(PAGE, &mut file).unwrap();
        assert_eq!((head.id.as_str(), head.next), ("0a", None));
        let all = file.variables.iter().map(Variable::figures);
        file.total = Figures::sum(all.chain([file.rest.figures()]));
        file
    }

    #[test]
    fn a_report_becomes_a_table() {
        let expected = "\
/mnt/a.nc, NetCDF classic (CDF-1)
variable  type         shape           raw    stored   ratio  transform
wind      float32 big  41x90x180  2.00 MiB  1.00 MiB   2.00x  residuals decimalx4 plane
a\\tb      int8         scalar          0 B       0 B       -
(other)   -            -          1.00 KiB     100 B  10.24x
total     -            -          2.00 MiB  1.00 MiB   2.00x
";
        assert_eq!(render(&file(), Bars::None, None), expected);
    }

    #[test]
    fn json_keeps_the_coders() {
        let json = serde_json::to_value(file()).unwrap();
        assert_eq!(
            json["variables"][0]["transforms"].as_array().unwrap().len(),
            2
        );
        assert_eq!(json["variables"][0]["type"], "float32 big");
        assert_eq!(json["rest"]["raw"], 1024);
        assert_eq!(json["complete"], true);
    }

    #[test]
    fn nonsense_is_not_a_report() {
        for page in [
            "",
            "vars=2\tid=1",
            "hello\nworld",
            &PAGE.replace("2097152", "x"),
        ] {
            assert!(parse(page, &mut File::default()).is_none(), "{page}");
        }
    }
}
