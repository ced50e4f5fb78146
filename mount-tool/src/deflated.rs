//! Variables that NetCDF-4 or HDF5 has deflated: ShaleFS gains nothing on them. How much space they
//! would take if they were stored plain.
//!
//! Some chunks are inflated, and encoded as settling would. The start of a chunk is not known in
//! the middle of an extent, so it is searched: the length and the checksum of a deflated chunk
//! prove it.

mod chunks;

use std::io;
use std::ops::Range;

use serde::Serialize;
use shale_layout::{Coding, Content, Layout, ReadAt, Variable};
use shale_store::Error;
use shale_store::estimate::{self, Estimator};

use crate::output::size;
use chunks::Chunks;

/// About how many plain bytes are encoded at one place of a variable.
const RUN: u64 = 2 << 20;
/// Most places that are examined in a file.
const PLACES: u64 = 64;
/// Larger chunks are skipped.
const CHUNK_MAX: u64 = 32 << 20;

/// Deflated bytes, and what is known about them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Deflated {
    raw: f64,
    /// How many of them the other figures are about.
    known: f64,
    plain: f64,
    stored: f64,
}

/// The same as a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Report {
    /// Bytes that are deflated.
    raw: u64,
    /// About how many bytes they inflate to.
    plain: Option<u64>,
    /// About how many bytes these would take in ShaleFS, stored plain and settled.
    stored_plain: Option<u64>,
}

impl Deflated {
    /// The figures multiplied.
    pub(crate) fn scaled(&self, times: f64) -> Self {
        Self {
            raw: self.raw * times,
            known: self.known * times,
            plain: self.plain * times,
            stored: self.stored * times,
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.raw += other.raw;
        self.known += other.known;
        self.plain += other.plain;
        self.stored += other.stored;
    }

    /// None if nothing is deflated.
    pub(crate) fn report(&self) -> Option<Report> {
        let all = |part: f64| {
            let all = part * self.raw / self.known;
            (self.known > 0.0).then(|| all.round() as u64)
        };
        (self.raw >= 1.0).then(|| Report {
            raw: self.raw.round() as u64,
            plain: all(self.plain),
            stored_plain: all(self.stored),
        })
    }
}

impl Report {
    pub(crate) fn describe(&self) -> String {
        let mut text = format!(
            "{} are already deflated by NetCDF-4 or HDF5 and gain nothing",
            size::human(self.raw)
        );
        if let Some(stored) = self.stored_plain {
            let verdict = if stored < self.raw {
                "take about"
            } else {
                "not take less, about"
            };
            text.push_str(&format!(
                "; stored plain ('nccopy -d0') they would {verdict} {}",
                size::human(stored)
            ));
        }
        text
    }
}

/// A variable and the places of its deflated chunks.
struct Part<'a> {
    variable: &'a Variable,
    /// Length of its plain chunks; none if they cannot be inflated.
    chunk_len: Option<u64>,
    ranges: Vec<Range<u64>>,
    len: u64,
}

/// Looks for deflated variables in a file, and encodes about `budget` plain bytes of them.
pub(crate) fn examine(
    source: &impl ReadAt,
    layout: &Layout,
    trial: &mut Estimator,
    budget: u64,
) -> Result<Deflated, Error> {
    let mut parts = parts(layout);
    let raw: u64 = parts.iter().map(|part| part.len).sum();
    let mut all = Deflated {
        raw: raw as f64,
        ..Deflated::default()
    };
    // The largest first. The others are assumed to be like them.
    parts.sort_by_key(|part| std::cmp::Reverse(part.len));
    let places = (budget / RUN).clamp(1, PLACES);
    let mut left = places;
    for part in &parts {
        let Some(chunk_len) = part.chunk_len else {
            continue;
        };
        let share = places as f64 * part.len as f64 / raw as f64;
        let count = (share.round() as u64).max(1);
        let Some(rest) = left.checked_sub(count) else {
            break;
        };
        left = rest;
        let mut tried = Deflated::default();
        for number in 0..count {
            let skip = u128::from(part.len) * u128::from(number) / u128::from(count);
            tried.add(&try_place(source, part, chunk_len, skip as u64, trial)?);
        }
        if tried.known > 0.0 {
            all.add(&tried.scaled(part.len as f64 / tried.known));
        }
    }
    Ok(all)
}

/// Variables whose chunks are deflated.
fn parts(layout: &Layout) -> Vec<Part<'_>> {
    let part = |variable| Part {
        variable,
        chunk_len: Chunks::len(variable).filter(|&len| len <= CHUNK_MAX),
        ranges: Vec::new(),
        len: 0,
    };
    let mut parts: Vec<Part<'_>> = layout.variables().iter().map(part).collect();
    for extent in layout.extents() {
        if let Content::Filtered {
            variable,
            coding: Coding::Compressed,
        } = extent.content
            && let Some(part) = parts.get_mut(variable as usize)
        {
            part.ranges.push(extent.offset..extent.end());
            part.len += extent.len;
        }
    }
    let deflated = |variable: &Variable| variable.filters.iter().any(|name| name == "deflate");
    parts.retain(|part| part.len > 0 && deflated(part.variable));
    parts
}

/// Inflates and encodes some chunks of a variable, `skip` bytes behind its first deflated one.
fn try_place(
    source: &impl ReadAt,
    part: &Part<'_>,
    chunk_len: u64,
    mut skip: u64,
    trial: &mut Estimator,
) -> Result<Deflated, Error> {
    let mut ranges = part.ranges.iter();
    let (start, end) = loop {
        match ranges.next() {
            Some(&Range { start, end }) if skip < end - start => break (start + skip, end),
            Some(&Range { start, end }) => skip -= end - start,
            None => return Ok(Deflated::default()),
        }
    };
    // The place may be in the middle of a chunk. A chunk that does not shrink is only a little
    // longer than its plain bytes.
    let window = 2 * chunk_len + chunk_len / 8 + RUN;
    let mut bytes = vec![0; (end - start).min(window) as usize];
    let failed = |source: io::Error| Error::Io {
        action: "read",
        path: "the sample".into(),
        source,
    };
    let mut filled = 0;
    while filled < bytes.len() {
        match source.read_at(start + filled as u64, &mut bytes[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(failed(e)),
        }
    }
    bytes.truncate(filled);
    let found = Chunks::find(part.variable, chunk_len, &bytes, RUN as usize);
    let plain = found.plain.len() as u64;
    let Some(region) = shale_fs::layout::chunks(part.variable, plain, chunk_len) else {
        return Ok(Deflated::default());
    };
    let mut stored = 0;
    for unit in estimate::units(&[region], plain, std::slice::from_ref(&(0..plain))) {
        let tried = trial.settle(&unit, usize::MAX, |offset, buffer| {
            let bytes = found.plain.get(offset as usize..).unwrap_or_default();
            let len = buffer.len().min(bytes.len());
            buffer[..len].copy_from_slice(&bytes[..len]);
            Ok(())
        })?;
        stored += tried.stored;
    }
    Ok(Deflated {
        raw: 0.0,
        known: found.deflated as f64,
        plain: plain as f64,
        stored: stored as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_not_shrink_is_not_promised() {
        let report = |known, stored| {
            let deflated = Deflated {
                raw: 2048.0,
                known,
                plain: 4096.0,
                stored,
            };
            deflated.report().unwrap()
        };
        assert_eq!(Deflated::default().report(), None);
        let text = report(1024.0, 256.0).describe();
        assert!(text.starts_with("2.00 KiB are already deflated"), "{text}");
        assert!(text.ends_with("they would take about 512 B"), "{text}");
        assert_eq!(report(1024.0, 256.0).plain, Some(8192));
        let text = report(2048.0, 4096.0).describe();
        assert!(text.ends_with("not take less, about 4.00 KiB"), "{text}");
        let text = report(0.0, 0.0).describe();
        assert!(text.ends_with("and gain nothing"), "{text}");
    }
}
