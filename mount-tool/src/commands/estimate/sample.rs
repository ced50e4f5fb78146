//! Chooses the bytes that are encoded, and predicts the rest from them.
//!
//! Small directories are encoded completely. Otherwise each large file contributes some of its
//! chunks, evenly spread from a random one. Small files are drawn whole, with a probability
//! proportional to their size, from a list ordered by suffix and size, so that every kind has its
//! share. The overhead of a file or chunk is part of its stored size. Holes take nothing and are
//! not read. Files that turn out to be unreadable are removed, and their weight goes to the others.

use std::collections::HashSet;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use shale_layout::{Layout, ParseOptions, ReadAt};
use shale_store::estimate::{self, Estimator, Measured, Unit};

use super::walk::{File, Found};
use crate::deflated::{self, Deflated};
use crate::output::failure::{Failure, exit};
use crate::output::progress::Progress;

/// The default chunk size of a mount.
const CHUNK: u64 = 1 << 20;
/// Files of at least this size are sampled by chunk.
const LARGE: u64 = 4 << 20;
/// About how many raw bytes of a settled part are encoded, and how many tiles of an array.
const PART: u64 = 8 << 20;
const TILES: usize = 16;
/// About how many plain bytes of the deflated variables of a file are encoded.
const DEFLATED: u64 = 16 << 20;
/// The least error in percent: machines and moments differ.
const LEAST_ERROR: f64 = 1.0;

/// The prediction for all files in one form.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Form {
    pub(super) stored: u64,
    pub(super) error_percent: f64,
    /// Share of the stored bytes that are stored unchanged.
    pub(super) plain_share: f64,
    pub(super) sampled_raw: u64,
    pub(super) encode_seconds: f64,
    pub(super) decode_seconds: f64,
}

/// Both forms, and the deflated data that limits them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Prediction {
    pub(super) written: Form,
    pub(super) settled: Form,
    /// Data that is already deflated.
    pub(super) deflated: Deflated,
}

/// A file of the sample, its weight, and how much of it is encoded.
struct Draw<'a> {
    file: &'a File,
    /// How many bytes its ratio represents.
    weight: f64,
    /// Bytes of it to encode.
    bytes: u64,
}

/// Sums over the sample.
#[derive(Default)]
struct Sum {
    stored: f64,
    /// How many bytes `stored` represents.
    weight: f64,
    variance: f64,
    tried: Measured,
}

/// Predicts for all readable files. Removes the others from `found`.
pub(super) fn predict(found: &mut Found, budget: u64, seed: u64) -> Result<Prediction, Failure> {
    let mut random = Random(seed);
    let draws = draw(found, budget, &mut random);
    let total: u64 = draws.iter().map(|draw| draw.bytes).sum();
    let mut progress = Progress::of("sampling");
    let mut trial = Estimator::default();
    let (mut written, mut settled) = (Sum::default(), Sum::default());
    let mut deflated = Deflated::default();
    let mut done = 0;
    let mut lost = HashSet::new();
    let mut first = None;
    for draw in &draws {
        let tried = try_file(&mut trial, draw, &mut random);
        match tried {
            Ok((as_written, as_settled, part)) => {
                written.add(draw, &as_written);
                settled.add(draw, &as_settled);
                deflated.add(&part.scaled(draw.weight / draw.file.data().max(1) as f64));
            }
            Err(shale_store::Error::Io { source, .. }) => {
                lost.insert(draw.file.path.clone());
                first.get_or_insert_with(|| Failure::io("read", &draw.file.path, &source));
            }
            Err(e) => return Err(Failure::new(exit::SOFTWARE, e.to_string())),
        }
        done += draw.bytes;
        progress.update(done, total);
    }
    drop(draws);
    found.leave_out(&lost);
    match first {
        Some(failure) if written.tried.raw == 0 => Err(failure),
        _ => Ok(Prediction {
            written: written.form(found.data()),
            settled: settled.form(found.data()),
            deflated: deflated.scaled(found.data() as f64 / written.weight.max(1.0)),
        }),
    }
}

impl Sum {
    fn add(&mut self, draw: &Draw<'_>, ratios: &Ratios) {
        let mean = ratios.mean();
        self.stored += mean * draw.weight;
        self.weight += draw.weight;
        if draw.bytes < draw.file.data() {
            self.variance += (ratios.deviation() * draw.weight).powi(2) / ratios.count() as f64;
        }
        self.tried.add(&ratios.tried);
    }

    fn form(&self, data: u64) -> Form {
        let tried = &self.tried;
        let all = data as f64 / self.weight.max(1.0);
        Form {
            stored: (self.stored * all).round() as u64,
            // Two standard deviations cover 19 of 20 cases.
            error_percent: (200.0 * self.variance.sqrt() / self.stored.max(1.0)).max(LEAST_ERROR),
            plain_share: tried.plain as f64 / tried.stored.max(1) as f64,
            sampled_raw: tried.raw,
            encode_seconds: tried.encode.as_secs_f64(),
            decode_seconds: tried.decode.as_secs_f64(),
        }
    }
}

/// Stored / raw bytes of some parts of a file.
#[derive(Clone, Default)]
struct Ratios {
    each: Vec<(f64, f64)>,
    tried: Measured,
}

impl Ratios {
    /// Adds a part that represents `weight` bytes.
    fn add(&mut self, tried: &Measured, weight: f64) {
        self.each
            .push((tried.stored as f64 / tried.raw.max(1) as f64, weight));
        self.tried.add(tried);
    }

    fn count(&self) -> usize {
        self.each.len().max(1)
    }

    fn mean(&self) -> f64 {
        let all: f64 = self.each.iter().map(|(_, weight)| weight).sum();
        let sum: f64 = self.each.iter().map(|(ratio, weight)| ratio * weight).sum();
        if all > 0.0 { sum / all } else { 1.0 }
    }

    /// Standard deviation of a part; a third of the mean if there is only one.
    fn deviation(&self) -> f64 {
        let mean = self.mean();
        if self.each.len() < 2 {
            return mean / 3.0;
        }
        let squares: f64 = self
            .each
            .iter()
            .map(|(ratio, _)| (ratio - mean).powi(2))
            .sum();
        (squares / (self.each.len() - 1) as f64).sqrt()
    }
}

fn draw<'a>(found: &'a Found, budget: u64, random: &mut Random) -> Vec<Draw<'a>> {
    if found.data() <= budget {
        let all = found.files.iter().map(|file| Draw {
            file,
            weight: file.data() as f64,
            bytes: file.data(),
        });
        return all.collect();
    }
    let rate = budget as f64 / found.data() as f64;
    let (large, mut small): (Vec<&File>, Vec<&File>) =
        found.files.iter().partition(|file| file.data() >= LARGE);
    let share = |file: &File| {
        ((file.data() as f64 * rate) as u64)
            .max(CHUNK)
            .min(file.data())
    };
    let mut draws = Vec::new();
    let each: u64 = large.iter().map(|file| share(file)).sum();
    if each <= 2 * budget {
        draws.extend(large.iter().map(|file| Draw {
            file,
            weight: file.data() as f64,
            bytes: share(file),
        }));
    } else {
        // Too many to read from each.
        draws.extend(by_size(&large, budget / CHUNK, CHUNK, random));
    }
    small.sort_by_cached_key(|file| (file.path.extension().map(ToOwned::to_owned), file.data()));
    let bytes: u64 = small.iter().map(|file| file.data()).sum();
    let mean = (bytes / small.len().max(1) as u64).max(1);
    let count = ((bytes as f64 * rate) as u64 / mean).clamp(64, 100_000);
    if count >= small.len() as u64 {
        draws.extend(small.iter().map(|file| Draw {
            file,
            weight: file.data() as f64,
            bytes: file.data(),
        }));
    } else {
        draws.extend(by_size(&small, count, u64::MAX, random));
    }
    draws
}

/// Draws `count` files evenly from the list, with a probability proportional to their size. Each
/// draw represents the same number of bytes. A file may be drawn several times, and is encoded
/// once.
fn by_size<'a>(files: &[&'a File], count: u64, most: u64, random: &mut Random) -> Vec<Draw<'a>> {
    let total: u64 = files.iter().map(|file| file.data()).sum();
    let step = total as f64 / count.max(1) as f64;
    let mut next = step * random.unit();
    let mut at = 0.0;
    let mut draws = Vec::new();
    for file in files {
        at += file.data() as f64;
        let mut times = 0;
        while next < at {
            next += step;
            times += 1;
        }
        if times > 0 {
            draws.push(Draw {
                file,
                weight: step * f64::from(times),
                bytes: file.data().min(most),
            });
        }
    }
    draws
}

/// The ratios of a file as written and settled, and its deflated data.
fn try_file(
    trial: &mut Estimator,
    draw: &Draw<'_>,
    random: &mut Random,
) -> Result<(Ratios, Ratios, Deflated), shale_store::Error> {
    let failed = |source| shale_store::Error::Io {
        action: "read",
        path: draw.file.path.clone(),
        source,
    };
    let source = Source {
        file: std::fs::File::open(&draw.file.path).map_err(failed)?,
        size: draw.file.size,
        parts: match &draw.file.parts {
            Some(parts) => parts.clone(),
            None => {
                let whole = 0..draw.file.size;
                vec![whole]
            }
        },
    };
    let written = try_written(trial, &source, draw, random)?;
    let layout = shale_layout::parse(&source, &ParseOptions::default());
    let deflated = deflated::examine(&source, &layout, trial, draw.bytes.min(DEFLATED))?;
    if draw.file.size < estimate::SETTLE_MIN {
        return Ok((written.clone(), written, deflated));
    }
    let settled = try_settled(trial, &source, &layout, draw, random)?;
    let worth = written.mean() * estimate::WORTH_PERCENT as f64 / 100.0;
    let settled = if settled.mean() < worth {
        settled
    } else {
        written.clone()
    };
    Ok((written, settled, deflated))
}

fn try_written(
    trial: &mut Estimator,
    source: &Source,
    draw: &Draw<'_>,
    random: &mut Random,
) -> Result<Ratios, shale_store::Error> {
    let hints = shale_fs::layout::hints(source);
    let chunks = source.chunks();
    let count = chunks.len() as u64;
    let wanted = if draw.bytes >= draw.file.data() {
        count
    } else {
        draw.bytes.div_ceil(CHUNK).clamp(1, count.max(1))
    };
    let mut ratios = Ratios::default();
    let mut buffer = Vec::new();
    for number in spread(count, wanted, random) {
        let Some(&Range { start, end }) = chunks.get(number as usize) else {
            break;
        };
        let len = end - start;
        source.fill(start, len, &mut buffer)?;
        let tried = trial.write(hints.as_deref(), start, &buffer)?;
        ratios.add(&tried, len as f64);
    }
    Ok(ratios)
}

fn try_settled(
    trial: &mut Estimator,
    source: &Source,
    layout: &Layout,
    draw: &Draw<'_>,
    random: &mut Random,
) -> Result<Ratios, shale_store::Error> {
    let parts = estimate::units(
        &shale_fs::layout::regions(layout),
        source.size,
        &source.parts,
    );
    let data = draw.file.data();
    let whole = draw.bytes >= data;
    let tiles = if whole { usize::MAX } else { TILES };
    let wanted = draw.bytes.div_ceil(PART).max(2);
    let mut ratios = Ratios::default();
    // By bytes, so that large parts are drawn more often. Each draw represents the same number.
    let step = data as f64 / wanted as f64;
    let mut next = step * random.unit();
    let mut at = 0.0;
    for part in &parts {
        at += part.raw() as f64;
        let mut weight = 0.0;
        while next < at {
            next += step;
            weight += step;
        }
        if whole {
            weight = part.raw() as f64;
        }
        if weight > 0.0 {
            ratios.add(&try_part(trial, source, part, tiles)?, weight);
        }
    }
    Ok(ratios)
}

fn try_part(
    trial: &mut Estimator,
    source: &Source,
    part: &Unit,
    tiles: usize,
) -> Result<Measured, shale_store::Error> {
    trial.settle(part, tiles, |offset, buffer| source.exact(offset, buffer))
}

/// `wanted` of `count` numbers, evenly spread from a random one.
fn spread(count: u64, wanted: u64, random: &mut Random) -> impl Iterator<Item = u64> {
    let step = count as f64 / wanted.max(1) as f64;
    let phase = random.unit();
    (0..wanted).map(move |number| {
        let at = ((number as f64 + phase) * step) as u64;
        at.min(count.saturating_sub(1))
    })
}

/// A file on any file system.
struct Source {
    file: std::fs::File,
    size: u64,
    /// Its ranges with data.
    parts: Vec<Range<u64>>,
}

impl Source {
    /// Its data, in chunks as in a mount.
    fn chunks(&self) -> Vec<Range<u64>> {
        let cut = |&Range { start, end }: &Range<u64>| {
            (start / CHUNK..end.div_ceil(CHUNK))
                .map(move |chunk| start.max(chunk * CHUNK)..end.min((chunk + 1) * CHUNK))
        };
        self.parts.iter().flat_map(cut).collect()
    }

    /// A file that was truncated meanwhile reads as zeros.
    fn exact(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < buffer.len() {
            match FileExt::read_at(&self.file, &mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        buffer[done..].fill(0);
        Ok(())
    }

    fn fill(&self, offset: u64, len: u64, buffer: &mut Vec<u8>) -> Result<(), shale_store::Error> {
        buffer.resize(len as usize, 0);
        self.exact(offset, buffer)
            .map_err(|source| shale_store::Error::Io {
                action: "read",
                path: "the sample".into(),
                source,
            })
    }
}

impl ReadAt for Source {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        FileExt::read_at(&self.file, buf, offset)
    }

    fn len(&self) -> u64 {
        self.size
    }
}

/// A small generator (SplitMix64): the same seed, the same sample.
struct Random(u64);

impl Random {
    /// From 0 up to, but not including, 1.
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((value ^ (value >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(sizes: &[u64]) -> Found {
        let files = sizes.iter().enumerate().map(|(number, &size)| File {
            path: format!("f{number}").into(),
            size,
            parts: None,
        });
        Found {
            files: files.collect(),
            raw: sizes.iter().sum(),
            ..Found::default()
        }
    }

    #[test]
    fn files_that_cannot_be_read_count_neither_as_raw_nor_as_stored() {
        let dir = tempfile::tempdir().unwrap();
        let mut random = Random(5);
        let noise: Vec<u8> = (0..200_000)
            .map(|_| (random.unit() * 256.0) as u8)
            .collect();
        let path = dir.path().join("noise");
        std::fs::write(&path, &noise).unwrap();
        let mut found = found(&[noise.len() as u64; 2]);
        found.files[1].path = path.clone();
        let prediction = predict(&mut found, 1 << 20, 1).unwrap();
        assert_eq!((found.raw, found.files.len()), (200_000, 1));
        assert_eq!(found.skipped.unreadable, 1);
        for form in [prediction.written, prediction.settled] {
            assert!((200_000..210_000).contains(&form.stored), "{form:?}");
        }
        std::fs::remove_file(&path).unwrap();
        let failure = predict(&mut found, 1 << 20, 1).unwrap_err();
        assert_eq!(failure.status, exit::NO_INPUT);
    }

    #[test]
    fn what_lost_files_stood_for_is_shared_out() {
        let dir = tempfile::tempdir().unwrap();
        let mut found = found(&[10_000; 2000]);
        // All alike, and every other one does not exist.
        for file in found.files.iter_mut().step_by(2) {
            file.path = dir.path().join(&file.path);
            std::fs::write(&file.path, vec![7; 10_000]).unwrap();
        }
        let mut there = Found {
            files: found.files.iter().step_by(2).cloned().collect(),
            raw: 10_000_000,
            ..Found::default()
        };
        let sampled = predict(&mut found, 1 << 20, 1).unwrap();
        let lost = found.skipped.unreadable;
        assert!(lost > 0 && lost < 1000, "{lost}");
        let whole = predict(&mut there, 1 << 30, 1).unwrap();
        let each = |form: &Form, found: &Found| form.stored as f64 / found.raw as f64;
        let (sampled, whole) = (each(&sampled.written, &found), each(&whole.written, &there));
        assert!((sampled / whole - 1.0).abs() < 0.001, "{sampled} {whole}");
    }

    #[test]
    fn weights_add_up_to_everything_and_every_large_file_is_drawn() {
        let mut sizes = vec![50 << 20, 300 << 20, 5 << 20, 900 << 20];
        sizes.extend((0..5000).map(|number| 1 + number * 37));
        let found = found(&sizes);
        let draws = draw(&found, 64 << 20, &mut Random(3));
        let weight: f64 = draws.iter().map(|draw| draw.weight).sum();
        assert!((weight / found.raw as f64 - 1.0).abs() < 0.01, "{weight}");
        let large = draws.iter().filter(|draw| draw.file.size >= LARGE);
        assert_eq!(large.count(), 4);
        let bytes: u64 = draws.iter().map(|draw| draw.bytes).sum();
        assert!(bytes < 100 << 20, "{bytes}");
    }

    #[test]
    fn too_many_large_files_are_drawn_by_size() {
        let found = found(&vec![LARGE; 10_000]);
        let draws = draw(&found, 64 << 20, &mut Random(3));
        assert!((60..=68).contains(&draws.len()), "{}", draws.len());
    }

    #[test]
    fn spread_numbers_are_distinct_and_in_range() {
        for (count, wanted) in [(1, 1), (7, 7), (100, 9), (1_000_000, 3)] {
            let numbers: Vec<u64> = spread(count, wanted, &mut Random(9)).collect();
            assert_eq!(numbers.len() as u64, wanted);
            assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]));
            assert!(numbers.iter().all(|&number| number < count));
        }
    }
}
