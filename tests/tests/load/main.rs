//! Many processes at once in one mount, and very many files, names, handles and holes.

use std::process::ExitCode;
use std::time::Duration;

use shale_tests::{Need, Suite};

mod crowd;
mod latency;
mod many;
mod mapping;
mod worker;

fn main() -> ExitCode {
    if let Some(code) = worker::main() {
        return code;
    }
    Suite::new("load")
        .need(Need::Shale)
        .limit(Duration::from_secs(600))
        .test(
            "a_crowd_leaves_nothing_behind",
            crowd::leaves_nothing_behind,
        )
        .limit(Duration::from_secs(3 * 3600))
        .test("very_many_files", many::files)
        .test("a_very_large_directory", many::entries)
        .test("a_very_large_file_of_holes", many::holes)
        .test("very_many_open_handles", many::handles)
        .test("names_of_all_bytes", many::byte_names)
        .run()
}
