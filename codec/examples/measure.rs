//! Measures the codec and two general ones on the sets of a manifest.
//!
//! usage: measure MANIFEST [SECONDS_PER_FIGURE] [PART_OF_A_SET'S_NAME] [CODEC,CODEC...]
//!
//! Prints one line per set and codec: name, class, codec, ratio, encode and
//! decode MB/s, memcpy MB/s of the same moment, transform used most.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use shale_codec::{ByteOrder, Decoder, Effort, ElementKind, Encoder, FrameKind, FrameMeta, Hint};

const CHUNK: usize = 1 << 20;
const BLOCK: usize = 128 << 10;
const META: FrameMeta = FrameMeta {
    kind: FrameKind::Data,
    inode: 1,
    offset: 0,
    sequence: 1,
};

/// MB/s of `work` over parts of the given sizes: the sum of each part's median
/// time, so that a preempted part does not count (with BEST in the
/// environment the least instead of the median, for a busy machine).
fn speed(sizes: &[usize], budget: Duration, mut work: impl FnMut(usize)) -> f64 {
    passes(sizes, budget, |part| part.into_iter().for_each(&mut work))
}

/// As [`speed`], with a call that is not counted before every pass.
fn passes(sizes: &[usize], budget: Duration, mut work: impl FnMut(Option<usize>)) -> f64 {
    let best = std::env::var_os("BEST").is_some();
    let mut times = vec![Vec::new(); sizes.len()];
    let begin = Instant::now();
    while times[0].len() < 6 || (begin.elapsed() < budget && times[0].len() < 300) {
        work(None);
        for (part, times) in times.iter_mut().enumerate() {
            let start = Instant::now();
            work(Some(part));
            times.push(start.elapsed());
        }
    }
    let total: Duration = times
        .iter_mut()
        .map(|times| {
            times.sort();
            if best {
                times[0]
            } else {
                times[times.len() / 2]
            }
        })
        .sum();
    sizes.iter().sum::<usize>() as f64 / 1e6 / total.as_secs_f64()
}

fn main() {
    let mut args = std::env::args().skip(1);
    let manifest = args.next().expect("a manifest");
    let budget = Duration::from_secs_f64(args.next().map_or(0.4, |s| s.parse().unwrap()));
    let only = args.next().unwrap_or_default();
    let codecs = args.next().unwrap_or_default();
    let wanted = |label: &str| codecs.is_empty() || codecs.split(',').any(|codec| codec == label);
    let folder = Path::new(&manifest).parent().unwrap().to_owned();
    // Far larger than the caches: chunks come from memory and go there.
    let source = vec![1u8; 96 << 20];
    let mut target = vec![2u8; 96 << 20];
    let foreign: Vec<u8> = (0..40_000u32).map(|i| (i / 3000 + i % 7) as u8).collect();
    let copy_sizes = vec![CHUNK; 96];
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

        let chunks: Vec<&[u8]> = raw.chunks(CHUNK).collect();
        let sizes: Vec<usize> = chunks.iter().map(|c| c.len()).collect();
        let blocks: Vec<&[u8]> = raw.chunks(BLOCK).collect();
        let block_sizes: Vec<usize> = blocks.iter().map(|b| b.len()).collect();
        let mut memcpy = || {
            speed(&copy_sizes, budget / 4, |i| {
                let at = i * CHUNK;
                target[at..at + CHUNK]
                    .copy_from_slice(std::hint::black_box(&source[at..at + CHUNK]));
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
            if !wanted(label) {
                continue;
            }
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
            let encode = passes(&sizes, budget, |i| {
                out.clear();
                // Between passes something else, so that the first chunk is
                // as new to the encoder as that of any file.
                let chunk = i.map_or(&foreign[..], |i| chunks[i]);
                let hint = if i.is_some() { hint } else { Hint::Unknown };
                encoder
                    .encode(&META, &hint, effort, chunk, &mut out)
                    .unwrap();
            });
            let mut decoder = Decoder::new();
            let decode = speed(&sizes, budget, |i| {
                decoder.decode(&frames[i], &mut out).unwrap();
            });
            let how = how.into_iter().max_by_key(|(_, n)| *n).unwrap().0;
            println!(
                "{name}\t{group}\t{label}\t{:.4}\t{encode:.0}\t{decode:.0}\t{copying:.0}\t{how}",
                raw.len() as f64 / stored as f64
            );
        }

        for level in [1, 3] {
            if !wanted(&format!("zstd-{level}/128K")) {
                continue;
            }
            let mut compressor = zstd::bulk::Compressor::new(level).unwrap();
            let mut decompressor = zstd::bulk::Decompressor::new().unwrap();
            let coded: Vec<Vec<u8>> = blocks
                .iter()
                .map(|block| compressor.compress(block).unwrap())
                .collect();
            let stored: usize = coded
                .iter()
                .zip(&blocks)
                .map(|(b, r)| b.len().min(r.len()))
                .sum();
            let mut out = vec![0; 256 << 10];
            let copying = memcpy();
            let encode = speed(&block_sizes, budget, |i| {
                compressor
                    .compress_to_buffer(blocks[i], &mut out[..])
                    .unwrap();
            });
            let decode = speed(&block_sizes, budget, |i| {
                decompressor
                    .decompress_to_buffer(&coded[i], &mut out[..])
                    .unwrap();
            });
            println!(
                "{name}\t{group}\tzstd-{level}/128K\t{:.4}\t{encode:.0}\t{decode:.0}\t{copying:.0}\t-",
                raw.len() as f64 / stored as f64
            );
        }
        if !wanted("lz4/128K") {
            continue;
        }
        let coded: Vec<Vec<u8>> = blocks
            .iter()
            .map(|block| lz4_flex::block::compress(block))
            .collect();
        let stored: usize = coded
            .iter()
            .zip(&blocks)
            .map(|(b, r)| b.len().min(r.len()))
            .sum();
        let mut out = vec![0; 256 << 10];
        let copying = memcpy();
        let encode = speed(&block_sizes, budget, |i| {
            lz4_flex::block::compress_into(blocks[i], &mut out).unwrap();
        });
        let decode = speed(&block_sizes, budget, |i| {
            lz4_flex::block::decompress_into(&coded[i], &mut out).unwrap();
        });
        println!(
            "{name}\t{group}\tlz4/128K\t{:.4}\t{encode:.0}\t{decode:.0}\t{copying:.0}\t-",
            raw.len() as f64 / stored as f64
        );
    }
}
