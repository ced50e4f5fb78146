//! `shale layout`

use std::fs::File;
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use shale_layout::{Layout, LayoutExtent, Variable};

use crate::cli::LayoutArgs;
use crate::failure::{Failure, exit};
use crate::report;

pub(crate) fn run(args: &LayoutArgs) -> Result<ExitCode, Failure> {
    let path = &args.file;
    let opening = |e: std::io::Error| Failure::io("open", path, &e);
    // Before it is opened: that of a pipe would wait for whoever writes to it.
    let metadata = std::fs::metadata(path).map_err(opening)?;
    if !metadata.is_file() {
        return Err(Failure::new(
            exit::NO_INPUT,
            format_args!("{} is not a regular file; name one", path.display()),
        ));
    }
    let file = File::open(path).map_err(opening)?;
    let layout = shale_layout::parse(&file, &shale_layout::Options::default());
    if args.json {
        report::print_json("layout", &Described::new(path, &layout))?;
    } else {
        report::print(&shale_layout::describe(&layout))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A layout for machines.
#[derive(Debug, Serialize)]
struct Described<'a> {
    path: String,
    /// As people call it; none where it is not understood.
    format: Option<&'static str>,
    raw: u64,
    /// Whether all of it was understood.
    complete: bool,
    /// Why not.
    problem: Option<String>,
    /// The file says that a writer has it open.
    marked_open: bool,
    variables: Vec<Typed<'a>>,
    extents: &'a [LayoutExtent],
}

/// A variable with its type as `shale stat --vars` has it.
#[derive(Debug, Serialize)]
struct Typed<'a> {
    #[serde(rename = "type")]
    kind: String,
    #[serde(flatten)]
    variable: &'a Variable,
}

impl<'a> Described<'a> {
    fn new(path: &Path, layout: &'a Layout) -> Self {
        let typed = |variable: &'a Variable| Typed {
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
