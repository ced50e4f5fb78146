//! `shale layout`

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use shale_layout::{Layout, LayoutExtent, Variable};

use crate::output::failure::{Failure, exit};
use crate::output::report;

const HELP: &str = "\
Exit status:
  0 shown, even if the format is not known; 64 wrong usage, 66 no such file, 74 I/O error,
  77 no permission

Examples:
  shale layout history.nc
  shale layout --json restart.h5";

#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct LayoutArgs {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Any file
    pub(crate) file: PathBuf,
}

pub(crate) fn run(args: &LayoutArgs) -> Result<ExitCode, Failure> {
    let path = &args.file;
    let opening = |e: std::io::Error| Failure::io("open", path, &e);
    // Before opening: opening a pipe would wait for a writer.
    let metadata = std::fs::metadata(path).map_err(opening)?;
    if !metadata.is_file() {
        return Err(Failure::new(
            exit::NO_INPUT,
            format_args!("{} is not a regular file; give one", path.display()),
        ));
    }
    let file = File::open(path).map_err(opening)?;
    let layout = shale_layout::parse(&file, &shale_layout::ParseOptions::default());
    if args.json {
        report::print_json("layout", &LayoutReport::new(path, &layout))?;
    } else {
        report::print(&shale_layout::describe(&layout))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A layout as JSON.
#[derive(Debug, Serialize)]
struct LayoutReport<'a> {
    path: String,
    /// The usual name; none when the format is not known.
    format: Option<&'static str>,
    raw: u64,
    /// Whether all of the file was understood.
    complete: bool,
    /// Why not.
    problem: Option<String>,
    /// The file's own mark says that a writer has it open.
    marked_open: bool,
    variables: Vec<TypedVariable<'a>>,
    extents: &'a [LayoutExtent],
}

/// A variable with its type as `shale stat --vars` has it.
#[derive(Debug, Serialize)]
struct TypedVariable<'a> {
    #[serde(rename = "type")]
    kind: String,
    #[serde(flatten)]
    variable: &'a Variable,
}

impl<'a> LayoutReport<'a> {
    fn new(path: &Path, layout: &'a Layout) -> Self {
        let typed = |variable: &'a Variable| TypedVariable {
            kind: variable.element.name(),
            variable,
        };
        Self {
            path: report::name(path),
            format: layout.format().map(|format| format.name()),
            raw: layout.file_len(),
            complete: layout.format().is_some() && layout.problem().is_none(),
            problem: layout.problem().map(ToString::to_string),
            marked_open: layout.is_marked_open(),
            variables: layout.variables().iter().map(typed).collect(),
            extents: layout.extents(),
        }
    }
}
