//! Prints the layout of files: `cargo run -p shale-layout --example layout -- [--json] FILE...`
#![allow(missing_docs)]

use std::fs::File;
use std::time::Instant;

use shale_layout::{Options, describe, parse};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut json = false;
    for name in std::env::args().skip(1) {
        if name == "--json" {
            json = true;
            continue;
        }
        let started = Instant::now();
        let layout = parse(&File::open(&name)?, &Options::default());
        let elapsed = started.elapsed();
        if json {
            println!("{}", serde_json::to_string(&layout)?);
        } else {
            println!("{name}: {}", describe(&layout));
            eprintln!(
                "{name}: {} extents, {} bytes read, {elapsed:?}",
                layout.extents().len(),
                layout.parsed().bytes()
            );
        }
    }
    Ok(())
}
