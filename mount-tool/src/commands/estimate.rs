//! `shale estimate`: how much space data would take in ShaleFS, and how fast it would be.

mod model;
mod plot;
mod sample;
mod walk;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use clap::builder::{PathBufValueParser, TypedValueParser};
use serde::Serialize;
use shale_fs::options::parse_size;

use crate::deflated;
use crate::output::failure::{Failure, exit};
use crate::output::report::{self, counted};
use crate::output::size;
use crate::output::table::{Align, Table};
use model::{Model, Throughput};
use plot::Picture;
use sample::{Form, Prediction};
use walk::Found;

const HELP: &str = "\
Reads a sample of the files below DIR, encodes it as a mount would, and predicts the rest from it.
Small directories are read completely. DIR can be on any file system and is not changed.

Ways to storage:
  base          no compression
  one by one    compress a piece, then write it
  interleaved   write what does not compress while compressing the rest

Exit status:
  0 done, 64 wrong usage, 66 no such directory or no data in it, 73 cannot write the plot,
  74 I/O error, 77 no permission

Examples:
  shale estimate /lustre/me/run1
  shale estimate --bandwidth 1G --plot run1.svg /lustre/me/run1
  shale estimate --json --sample 1G -x /archive";

#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct EstimateArgs {
    /// Print JSON, sizes in bytes
    #[arg(long)]
    pub(crate) json: bool,
    /// Bandwidth of the storage in bytes per second, decimal: 200M is 200 MB/s
    #[arg(long, value_name = "SIZE", default_value = "200M", value_parser = bandwidth)]
    pub(crate) bandwidth: u64,
    /// About how many bytes to encode
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = bytes)]
    pub(crate) sample: u64,
    /// Seed of the sample; the same seed takes the same sample
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Number of cores that compress [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=256))]
    pub(crate) workers: Option<u64>,
    /// Stay on the file system of DIR
    #[arg(short = 'x', long)]
    pub(crate) one_file_system: bool,
    /// Plot the throughputs to this file, whose name ends in .svg or .png
    #[arg(long, value_name = "FILE", value_parser = PathBufValueParser::new().try_map(Picture::new))]
    pub(crate) plot: Option<Picture>,
    /// Any directory or file
    pub(crate) dir: PathBuf,
}

fn bytes(text: &str) -> Result<u64, String> {
    match parse_size(text) {
        Some(bytes) if (1 << 20..=1 << 50).contains(&bytes) => Ok(bytes),
        _ => Err("give a size of at least 1M, for example 200M".to_owned()),
    }
}

/// Bandwidths are decimal, as storage is sold.
fn bandwidth(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => Some(1.0),
        "k" | "kb" => Some(1e3),
        "m" | "mb" => Some(1e6),
        "g" | "gb" => Some(1e9),
        "t" | "tb" => Some(1e12),
        _ => None,
    };
    let number = digits.parse::<f64>().ok().filter(|n| n.is_finite());
    match (unit, number) {
        (Some(unit), Some(number)) if (1e6..=1e15).contains(&(number * unit)) => {
            Ok((number * unit).round() as u64)
        }
        _ => Err("give bytes per second, at least 1M, for example 200M".to_owned()),
    }
}

/// The report.
#[derive(Debug, Serialize)]
struct Estimate {
    path: String,
    files: u64,
    raw: u64,
    /// Bytes of `raw` that are holes.
    holes: u64,
    /// Skipped entries, by reason.
    skipped: walk::Skipped,
    /// Bytes of the sample.
    sampled: u64,
    workers: u64,
    bandwidth: u64,
    written: Outcome,
    settled: Outcome,
    /// Data that NetCDF-4 or HDF5 has already deflated.
    deflated: Option<deflated::Report>,
}

/// The prediction for one form.
#[derive(Debug, Serialize)]
struct Outcome {
    stored: u64,
    ratio: f64,
    /// Sampling error in percent, in 19 of 20 cases.
    error_percent: f64,
    /// Bytes per second of one core.
    encode_per_core: u64,
    decode_per_core: u64,
    /// Seconds to encode everything with all workers.
    encode_seconds: f64,
    write: Throughput,
    read: Throughput,
}

pub(crate) fn run(args: &EstimateArgs) -> Result<ExitCode, Failure> {
    let mut found = walk::walk(&args.dir, args.one_file_system)?;
    if found.files.is_empty() && found.skipped.unreadable > 0 {
        return Err(Failure::new(
            exit::NO_PERMISSION,
            format_args!(
                "nothing in {} can be read; ask its owner for access, or run this as root",
                args.dir.display()
            ),
        ));
    }
    if found.data() == 0 {
        return Err(Failure::new(
            exit::NO_INPUT,
            format_args!(
                "{} holds no data; give a directory with files",
                args.dir.display()
            ),
        ));
    }
    let prediction = sample::predict(&mut found, args.sample, args.seed)?;
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let estimate = conclude(args, &found, &prediction, args.workers.unwrap_or(cores));
    if let Some(picture) = &args.plot {
        let bars = [
            ("written", &estimate.written.write),
            ("read", &estimate.written.read),
            ("read when settled", &estimate.settled.read),
        ];
        std::fs::write(&picture.path, picture.draw(&bars)).map_err(|e| {
            Failure::io("write", &picture.path, &e).with_status(exit::CANNOT_CREATE)
        })?;
    }
    if args.json {
        report::print_json("estimate", &estimate)?;
    } else {
        report::print(&render(&estimate))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn conclude(args: &EstimateArgs, found: &Found, prediction: &Prediction, workers: u64) -> Estimate {
    let outcome = |form: &Form| {
        let speed = |seconds: f64| (form.sampled_raw as f64 / seconds.max(1e-9)) as u64;
        let (encode, decode) = (speed(form.encode_seconds), speed(form.decode_seconds));
        let plain = form.plain_share * form.stored as f64;
        let model = |codec: u64| Model {
            raw: found.data() as f64,
            stored: form.stored as f64,
            plain,
            codec: (codec * workers) as f64,
            bandwidth: args.bandwidth as f64,
        };
        Outcome {
            stored: form.stored,
            ratio: found.raw as f64 / form.stored.max(1) as f64,
            error_percent: form.error_percent,
            encode_per_core: encode,
            decode_per_core: decode,
            encode_seconds: found.data() as f64 / (encode * workers).max(1) as f64,
            write: model(encode).throughput(),
            read: model(decode).throughput(),
        }
    };
    Estimate {
        path: report::name(&args.dir),
        files: found.files.len() as u64,
        raw: found.raw,
        holes: found.raw - found.data(),
        skipped: found.skipped,
        sampled: prediction.written.sampled_raw,
        workers,
        bandwidth: args.bandwidth,
        written: outcome(&prediction.written),
        settled: outcome(&prediction.settled),
        deflated: prediction.deflated.report(),
    }
}

fn seconds(seconds: f64) -> String {
    let decimals = usize::from(seconds < 10.0);
    format!("{seconds:.decimals$} s")
}

fn render(estimate: &Estimate) -> String {
    let mut text = format!(
        "{} in {}, {} of it sampled",
        size::human(estimate.raw),
        counted(estimate.files, "file", "files"),
        size::human(estimate.sampled)
    );
    if estimate.holes > 0 {
        text.push_str(&format!(", {} holes", size::human(estimate.holes)));
    }
    text.push('\n');
    let skipped = estimate.skipped.describe();
    if !skipped.is_empty() {
        text.push_str(&format!("skipped: {skipped}\n"));
    }
    let mut table = Table::new(&[
        ("", Align::Left),
        ("stored", Align::Right),
        ("ratio", Align::Right),
        ("error", Align::Right),
        ("encode/core", Align::Right),
        ("decode/core", Align::Right),
    ]);
    let forms = [
        ("as written", &estimate.written),
        ("settled", &estimate.settled),
    ];
    let rate = |bytes: u64| format!("{:.0} MB/s", bytes as f64 / 1e6);
    for (name, form) in forms {
        table.row([
            name.to_owned(),
            size::human(form.stored),
            format!("{:.2}x", form.ratio),
            format!("±{:.0} %", form.error_percent.ceil()),
            rate(form.encode_per_core),
            rate(form.decode_per_core),
        ]);
    }
    text.push('\n');
    text.push_str(&table.render());
    if let Some(deflated) = &estimate.deflated {
        text.push_str(&format!("\n{}\n", deflated.describe()));
    }
    text.push_str(&format!(
        "\nwith storage of {} and {}:\n",
        rate(estimate.bandwidth),
        counted(estimate.workers, "core", "cores")
    ));
    let mut table = Table::new(&[
        ("", Align::Left),
        ("base", Align::Right),
        ("one by one", Align::Right),
        ("interleaved", Align::Right),
        ("time", Align::Right),
    ]);
    let rows = [
        ("write", &estimate.written.write),
        ("read", &estimate.written.read),
        ("read when settled", &estimate.settled.read),
    ];
    for (name, way) in rows {
        table.row([
            name.to_owned(),
            rate(way.base as u64),
            rate(way.one_by_one as u64),
            rate(way.interleaved as u64),
            seconds((estimate.raw - estimate.holes) as f64 / way.interleaved.max(1.0)),
        ]);
    }
    text.push_str(&table.render());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bandwidths_are_decimal() {
        assert_eq!(bandwidth("200M"), Ok(200_000_000));
        assert_eq!(bandwidth("1.5G"), Ok(1_500_000_000));
        assert_eq!(bandwidth("2000000"), Ok(2_000_000));
        for text in ["", "0", "x", "M", "-1G", "1e999G", "5q", "infM", "999K"] {
            assert!(bandwidth(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_directory_is_estimated_in_both_forms() {
        let dir = tempfile::tempdir().unwrap();
        let smooth: Vec<u8> = (0..600_000u32)
            .flat_map(|i| ((f64::from(i) / 1000.0).sin() as f32).to_le_bytes())
            .collect();
        std::fs::write(dir.path().join("smooth.bin"), &smooth).unwrap();
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        std::fs::write(
            dir.path().join("sub/words.txt"),
            "some words\n".repeat(5000),
        )
        .unwrap();
        let args = EstimateArgs {
            json: false,
            bandwidth: 200 << 20,
            sample: 256 << 20,
            seed: 1,
            workers: Some(2),
            one_file_system: true,
            plot: None,
            dir: dir.path().to_owned(),
        };
        let mut found = walk::walk(&args.dir, true).unwrap();
        let prediction = sample::predict(&mut found, args.sample, args.seed).unwrap();
        let estimate = conclude(&args, &found, &prediction, 2);
        assert_eq!((estimate.files, estimate.sampled), (2, found.raw));
        assert!(estimate.written.ratio > 1.2, "{estimate:?}");
        assert!(
            estimate.settled.stored <= estimate.written.stored,
            "{estimate:?}"
        );
        let text = render(&estimate);
        assert!(
            text.contains("as written") && text.contains("interleaved"),
            "{text}"
        );
    }
}
