//! `shale layout`

use std::fs::File;
use std::process::ExitCode;

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
        report::print_json(&layout)?;
    } else {
        report::print(&shale_layout::describe(&layout))?;
    }
    Ok(ExitCode::SUCCESS)
}
