//! Measures the codec and two general ones on the sets of a manifest.
//!
//! usage: measure MANIFEST [SECONDS_PER_FIGURE] [PART_OF_A_SET'S_NAME] [CODEC,CODEC...]
//!
//! Prints one line per set and codec: name, class, codec, ratio, encode and
//! decode MB/s, memcpy MB/s of the same moment, transform used most. All codecs
//! take turns of a few passes, so that a disturbance hits all of them alike.
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

/// Times of every part of a set over many passes.
struct Clock {
    sizes: Vec<usize>,
    times: Vec<Vec<Duration>>,
}

impl Clock {
    fn new(sizes: Vec<usize>) -> Self {
        let times = vec![Vec::new(); sizes.len()];
        Clock { sizes, times }
    }

    fn pass(&mut self, mut work: impl FnMut(usize)) {
        for (part, times) in self.times.iter_mut().enumerate() {
            let start = Instant::now();
            work(part);
            times.push(start.elapsed());
        }
    }

    /// MB/s: the sum of each part's median time, so that a preempted part does
    /// not count (with BEST in the environment the least instead of the
    /// median, for a busy machine).
    fn speed(&mut self) -> f64 {
        let best = std::env::var_os("BEST").is_some();
        let total: Duration = self
            .times
            .iter_mut()
            .map(|times| {
                times.sort();
                times[if best { 0 } else { times.len() / 2 }]
            })
            .sum();
        self.sizes.iter().sum::<usize>() as f64 / 1e6 / total.as_secs_f64()
    }
}

/// One codec on one set.
struct Entry<'a> {
    label: String,
    ratio: f64,
    how: String,
    /// Encodes a part; without one, something else, so that the first part of
    /// a pass is as new to the codec as that of any file.
    encode: Box<dyn FnMut(Option<usize>) + 'a>,
    decode: Box<dyn FnMut(usize) + 'a>,
    encoding: Clock,
    decoding: Clock,
    copying: Clock,
}

fn sizes(parts: &[&[u8]]) -> Vec<usize> {
    parts.iter().map(|part| part.len()).collect()
}

/// Bytes over stored bytes, a part never counting for more than itself.
fn ratio(parts: &[&[u8]], coded: &[Vec<u8>]) -> f64 {
    let stored: usize = parts
        .iter()
        .zip(coded)
        .map(|(part, coded)| part.len().min(coded.len()))
        .sum();
    sizes(parts).iter().sum::<usize>() as f64 / stored as f64
}

fn shale<'a>(
    label: &str,
    hint: Hint<'a>,
    effort: Effort,
    chunks: &'a [&'a [u8]],
    foreign: &'a [u8],
) -> Entry<'a> {
    let mut encoder = Encoder::new();
    let mut how = BTreeMap::new();
    let frames: Vec<Vec<u8>> = chunks
        .iter()
        .map(|chunk| {
            let mut frame = Vec::new();
            let summary = encoder
                .encode(&META, &hint, effort, chunk, &mut frame)
                .unwrap();
            *how.entry(summary.to_string()).or_insert(0) += 1;
            frame
        })
        .collect();
    let raw: usize = chunks.iter().map(|chunk| chunk.len()).sum();
    let stored: usize = frames.iter().map(Vec::len).sum();
    let mut out = Vec::with_capacity(CHUNK * 2);
    let mut back = Vec::with_capacity(CHUNK * 2);
    let mut decoder = Decoder::new();
    Entry {
        label: label.to_owned(),
        ratio: raw as f64 / stored as f64,
        how: how.into_iter().max_by_key(|(_, n)| *n).unwrap().0,
        encode: Box::new(move |part| {
            out.clear();
            let (chunk, hint) = part.map_or((foreign, Hint::Unknown), |i| (chunks[i], hint));
            encoder
                .encode(&META, &hint, effort, chunk, &mut out)
                .unwrap();
        }),
        decode: Box::new(move |part| {
            decoder.decode(&frames[part], &mut back).unwrap();
        }),
        encoding: Clock::new(sizes(chunks)),
        decoding: Clock::new(sizes(chunks)),
        copying: Clock::new(vec![CHUNK; 8]),
    }
}

fn zstd<'a>(level: i32, blocks: &'a [&'a [u8]]) -> Entry<'a> {
    let mut compressor = zstd::bulk::Compressor::new(level).unwrap();
    let mut decompressor = zstd::bulk::Decompressor::new().unwrap();
    let coded: Vec<Vec<u8>> = blocks
        .iter()
        .map(|block| compressor.compress(block).unwrap())
        .collect();
    let (mut out, mut back) = (vec![0; 256 << 10], vec![0; 256 << 10]);
    Entry {
        label: format!("zstd-{level}/128K"),
        ratio: ratio(blocks, &coded),
        how: "-".to_owned(),
        encode: Box::new(move |part| {
            if let Some(part) = part {
                compressor
                    .compress_to_buffer(blocks[part], &mut out[..])
                    .unwrap();
            }
        }),
        decode: Box::new(move |part| {
            decompressor
                .decompress_to_buffer(&coded[part], &mut back[..])
                .unwrap();
        }),
        encoding: Clock::new(sizes(blocks)),
        decoding: Clock::new(sizes(blocks)),
        copying: Clock::new(vec![CHUNK; 8]),
    }
}

fn lz4<'a>(blocks: &'a [&'a [u8]]) -> Entry<'a> {
    let coded: Vec<Vec<u8>> = blocks
        .iter()
        .map(|block| lz4_flex::block::compress(block))
        .collect();
    let (mut out, mut back) = (vec![0; 256 << 10], vec![0; 256 << 10]);
    Entry {
        label: "lz4/128K".to_owned(),
        ratio: ratio(blocks, &coded),
        how: "-".to_owned(),
        encode: Box::new(move |part| {
            if let Some(part) = part {
                lz4_flex::block::compress_into(blocks[part], &mut out).unwrap();
            }
        }),
        decode: Box::new(move |part| {
            lz4_flex::block::decompress_into(&coded[part], &mut back).unwrap();
        }),
        encoding: Clock::new(sizes(blocks)),
        decoding: Clock::new(sizes(blocks)),
        copying: Clock::new(vec![CHUNK; 8]),
    }
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
    let mut copied = 0;
    let foreign: Vec<u8> = (0..40_000u32).map(|i| (i / 3000 + i % 7) as u8).collect();
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
        let order = match order {
            "big" => ByteOrder::Big,
            _ => ByteOrder::Little,
        };
        let shaped = Hint::Array {
            width,
            kind,
            order,
            shape: &shape,
        };
        let chunks: Vec<&[u8]> = raw.chunks(CHUNK).collect();
        let blocks: Vec<&[u8]> = raw.chunks(BLOCK).collect();
        let mut entries = Vec::new();
        for (label, hint, effort) in [
            ("none", Hint::Unknown, Effort::None),
            ("fast", Hint::Unknown, Effort::Fast),
            ("fast+shape", shaped, Effort::Fast),
            ("balanced", Hint::Unknown, Effort::Balanced),
            ("balanced+shape", shaped, Effort::Balanced),
            ("dense", Hint::Unknown, Effort::Dense),
            ("dense+shape", shaped, Effort::Dense),
        ] {
            if wanted(label) {
                entries.push(shale(label, hint, effort, &chunks, &foreign));
            }
        }
        for level in [1, 3] {
            if wanted(&format!("zstd-{level}/128K")) {
                entries.push(zstd(level, &blocks));
            }
        }
        if wanted("lz4/128K") {
            entries.push(lz4(&blocks));
        }

        let begin = Instant::now();
        let time = budget * 2 * entries.len() as u32;
        let mut rounds = 0;
        while rounds < 5 || (begin.elapsed() < time && rounds < 300) {
            for entry in &mut entries {
                entry.copying.pass(|_| {
                    let at = copied % 96 * CHUNK;
                    copied += 1;
                    let target = &mut target[at..at + CHUNK];
                    target.copy_from_slice(std::hint::black_box(&source[at..at + CHUNK]));
                    std::hint::black_box(target);
                });
                // The first pass of a turn only warms up.
                for pass in 0..3 {
                    (entry.encode)(None);
                    let mut work = |part| (entry.encode)(Some(part));
                    match pass {
                        0 => (0..entry.encoding.sizes.len()).for_each(&mut work),
                        _ => entry.encoding.pass(work),
                    }
                }
                for pass in 0..3 {
                    match pass {
                        0 => (0..entry.decoding.sizes.len()).for_each(&mut entry.decode),
                        _ => entry.decoding.pass(&mut entry.decode),
                    }
                }
            }
            rounds += 1;
        }
        for entry in &mut entries {
            println!(
                "{name}\t{group}\t{}\t{:.4}\t{:.0}\t{:.0}\t{:.0}\t{}",
                entry.label,
                entry.ratio,
                entry.encoding.speed(),
                entry.decoding.speed(),
                entry.copying.speed(),
                entry.how
            );
        }
    }
}
