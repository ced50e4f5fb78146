//! Repeats one operation on one file, for a profiler.
//!
//! usage: spin FILE EFFORT encode|decode SECONDS WIDTH (0: unknown, floats otherwise)
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use shale_codec::{ByteOrder, Decoder, Effort, ElementKind, Encoder, FrameKind, FrameMeta, Hint};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let raw = std::fs::read(&args[0]).unwrap();
    let effort: Effort = args[1].parse().unwrap();
    let seconds = Duration::from_secs_f64(args[3].parse().unwrap());
    let hint = match args[4].parse().unwrap() {
        0 => Hint::Unknown,
        width => Hint::Elements {
            width,
            kind: ElementKind::Float,
            order: ByteOrder::Little,
        },
    };
    let meta = FrameMeta {
        kind: FrameKind::Data,
        inode: 1,
        offset: 0,
        sequence: 1,
    };
    let mut encoder = Encoder::new();
    let mut decoder = Decoder::new();
    let (mut frame, mut out) = (Vec::new(), Vec::new());
    let mut best = Duration::MAX;
    let begin = Instant::now();
    while begin.elapsed() < seconds {
        let mut spent = Duration::ZERO;
        for chunk in raw.chunks(1 << 20) {
            frame.clear();
            let start = Instant::now();
            encoder
                .encode(&meta, &hint, effort, chunk, &mut frame)
                .unwrap();
            if args[2] == "decode" {
                let start = Instant::now();
                for _ in 0..10 {
                    decoder.decode(&frame, &mut out).unwrap();
                }
                spent += start.elapsed() / 10;
            } else {
                spent += start.elapsed();
            }
        }
        best = best.min(spent);
    }
    println!(
        "best {:.0} MB/s",
        raw.len() as f64 / 1e6 / best.as_secs_f64()
    );
}
