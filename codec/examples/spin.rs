//! Repeats one operation on one file, for a profiler.
//!
//! usage: spin FILE EFFORT encode|decode SECONDS WIDTH [CHUNK_LENGTH]
//! (width 0: unknown, otherwise floats)
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use shale_codec::{ByteOrder, Decoder, Effort, ElementKind, Encoder, FrameKind, FrameMeta, Hint};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let raw = std::fs::read(&args[0]).unwrap();
    let effort: Effort = args[1].parse().unwrap();
    let seconds = Duration::from_secs_f64(args[3].parse().unwrap());
    let chunk_len = args.get(5).map_or(1 << 20, |len| len.parse().unwrap());
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
    // The least time of every chunk, so that a preempted one does not count.
    let chunks: Vec<&[u8]> = raw.chunks(chunk_len).collect();
    let mut least = vec![Duration::MAX; chunks.len()];
    let mut how = String::new();
    let begin = Instant::now();
    while begin.elapsed() < seconds {
        for (chunk, least) in chunks.iter().zip(&mut least) {
            frame.clear();
            let start = Instant::now();
            how = encoder
                .encode(&meta, &hint, effort, chunk, &mut frame)
                .map(|summary| summary.to_string())
                .unwrap();
            if args[2] == "decode" {
                for _ in 0..10 {
                    let start = Instant::now();
                    decoder.decode(&frame, &mut out).unwrap();
                    *least = (*least).min(start.elapsed());
                }
            } else {
                *least = (*least).min(start.elapsed());
            }
        }
    }
    println!(
        "best {:.0} MB/s, {how}",
        raw.len() as f64 / 1e6 / least.iter().sum::<Duration>().as_secs_f64()
    );
}
