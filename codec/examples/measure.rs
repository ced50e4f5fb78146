//! Measures the codec and two general ones on the sets of a manifest.
//!
//! usage: measure MANIFEST [SECONDS_PER_FIGURE] [ONLY]
//!
//! Prints one line per set and codec: name, class, codec, ratio, encode and
//! decode MB/s, memcpy MB/s of the same moment, transform used most.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use shale_codec::{ByteOrder, Decoder, Effort, ElementKind, Encoder, FrameKind, FrameMeta, Hint};

const CHUNK: usize = 1 << 20;
const META: FrameMeta = FrameMeta {
    kind: FrameKind::Data,
    inode: 1,
    offset: 0,
    sequence: 1,
};

/// The median MB/s of `work` over `bytes`, repeated for `budget`.
fn speed(bytes: usize, budget: Duration, mut work: impl FnMut()) -> f64 {
    work();
    let begin = Instant::now();
    let mut times = Vec::new();
    while times.len() < 5 || (begin.elapsed() < budget && times.len() < 500) {
        let start = Instant::now();
        work();
        times.push(start.elapsed());
    }
    times.sort();
    bytes as f64 / 1e6 / times[times.len() / 2].as_secs_f64()
}

fn main() {
    let mut args = std::env::args().skip(1);
    let manifest = args.next().expect("a manifest");
    let budget = Duration::from_secs_f64(args.next().map_or(0.4, |s| s.parse().unwrap()));
    let only = args.next().unwrap_or_default();
    let folder = Path::new(&manifest).parent().unwrap().to_owned();
    for line in std::fs::read_to_string(&manifest).unwrap().lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [name, group, kind, width, order, shape, file] = fields[..] else {
            continue;
        };
        if !name.contains(&only) {
            continue;
        }
        let mut raw = std::fs::read(folder.join(file)).unwrap();
        // Enough to leave the caches without taking all day.
        raw.truncate(8 << 20);
        let width: usize = width.parse().unwrap();
        let shape: Vec<usize> = shape.split('x').map(|s| s.parse().unwrap()).collect();
        let kind = match kind {
            "float" => ElementKind::Float,
            "int" => ElementKind::Int,
            "uint" => ElementKind::Uint,
            _ => ElementKind::Opaque,
        };
        let order = if order == "big" {
            ByteOrder::Big
        } else {
            ByteOrder::Little
        };
        let shaped = Hint::Array {
            width,
            kind,
            order,
            shape: &shape,
        };

        let mut copy = vec![0; raw.len()];
        let mut memcpy = || {
            speed(raw.len(), budget / 4, || {
                for (to, from) in copy.chunks_mut(CHUNK).zip(raw.chunks(CHUNK)) {
                    to.copy_from_slice(std::hint::black_box(from));
                }
            })
        };

        for (label, hint, effort) in [
            ("none", Hint::Unknown, Effort::None),
            ("fast", Hint::Unknown, Effort::Fast),
            ("fast+shape", shaped, Effort::Fast),
            ("balanced", Hint::Unknown, Effort::Balanced),
            ("balanced+shape", shaped, Effort::Balanced),
            ("dense", Hint::Unknown, Effort::Dense),
            ("dense+shape", shaped, Effort::Dense),
        ] {
            let mut encoder = Encoder::new();
            let mut out = Vec::with_capacity(CHUNK * 2);
            let mut how = BTreeMap::new();
            let frames: Vec<Vec<u8>> = raw
                .chunks(CHUNK)
                .map(|chunk| {
                    let mut frame = Vec::new();
                    let summary = encoder
                        .encode(&META, &hint, effort, chunk, &mut frame)
                        .unwrap();
                    *how.entry(summary.to_string()).or_insert(0) += 1;
                    frame
                })
                .collect();
            let stored: usize = frames.iter().map(Vec::len).sum();
            let copying = memcpy();
            let encode = speed(raw.len(), budget, || {
                for chunk in raw.chunks(CHUNK) {
                    out.clear();
                    encoder
                        .encode(&META, &hint, effort, chunk, &mut out)
                        .unwrap();
                }
            });
            let mut decoder = Decoder::new();
            let decode = speed(raw.len(), budget, || {
                for frame in &frames {
                    decoder.decode(frame, &mut out).unwrap();
                }
            });
            let how = how.into_iter().max_by_key(|(_, n)| *n).unwrap().0;
            println!(
                "{name}\t{group}\t{label}\t{:.4}\t{encode:.0}\t{decode:.0}\t{copying:.0}\t{how}",
                raw.len() as f64 / stored as f64
            );
        }

        for level in [1, 3] {
            let mut compressor = zstd::bulk::Compressor::new(level).unwrap();
            let mut decompressor = zstd::bulk::Decompressor::new().unwrap();
            let blocks: Vec<Vec<u8>> = raw
                .chunks(128 << 10)
                .map(|block| compressor.compress(block).unwrap())
                .collect();
            let stored: usize = blocks
                .iter()
                .zip(raw.chunks(128 << 10))
                .map(|(b, r)| b.len().min(r.len()))
                .sum();
            let mut out = vec![0; 256 << 10];
            let copying = memcpy();
            let encode = speed(raw.len(), budget, || {
                for block in raw.chunks(128 << 10) {
                    compressor.compress_to_buffer(block, &mut out[..]).unwrap();
                }
            });
            let decode = speed(raw.len(), budget, || {
                for block in &blocks {
                    decompressor
                        .decompress_to_buffer(block, &mut out[..])
                        .unwrap();
                }
            });
            println!(
                "{name}\t{group}\tzstd-{level}/128K\t{:.4}\t{encode:.0}\t{decode:.0}\t{copying:.0}\t-",
                raw.len() as f64 / stored as f64
            );
        }
        let blocks: Vec<Vec<u8>> = raw
            .chunks(128 << 10)
            .map(lz4_flex::block::compress)
            .collect();
        let stored: usize = blocks
            .iter()
            .zip(raw.chunks(128 << 10))
            .map(|(b, r)| b.len().min(r.len()))
            .sum();
        let mut out = vec![0; 256 << 10];
        let copying = memcpy();
        let encode = speed(raw.len(), budget, || {
            for block in raw.chunks(128 << 10) {
                lz4_flex::block::compress_into(block, &mut out).unwrap();
            }
        });
        let decode = speed(raw.len(), budget, || {
            for block in &blocks {
                lz4_flex::block::decompress_into(block, &mut out).unwrap();
            }
        });
        println!(
            "{name}\t{group}\tlz4/128K\t{:.4}\t{encode:.0}\t{decode:.0}\t{copying:.0}\t-",
            raw.len() as f64 / stored as f64
        );
    }
}
