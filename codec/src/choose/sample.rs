//! Estimates the cost of a transform on a small sample of a chunk.
#![forbid(unsafe_code)]

use std::ops::{Deref, Range};
use std::sync::OnceLock;

use crate::entropy::{classes, sparse};
use crate::frame::{DENOMINATORS, NumberMap, Predictor, Recipe, Scheme};
use crate::transform::decimal;
use crate::transform::decimal::FloatWord;
use crate::transform::float::Slope;
use crate::transform::predict;

/// c * log2(c), from which entropies are summed.
fn plogp_table() -> &'static [f32] {
    const LEN: usize = 8193;
    static TABLE: OnceLock<Vec<f32>> = OnceLock::new();
    TABLE.get_or_init(|| {
        (0..LEN)
            .map(|c| {
                if c == 0 {
                    0.0
                } else {
                    c as f32 * (c as f32).log2()
                }
            })
            .collect()
    })
}

/// Bits per symbol of a histogram, corrected for the smallness of the sample.
pub(crate) fn entropy(counts: &[u32; 256]) -> f32 {
    let table = plogp_table();
    let plogp = |count: u32| match table.get(count as usize) {
        Some(value) => *value,
        None => count as f32 * (count as f32).log2(),
    };
    let mut total = 0;
    let mut sum = 0.0;
    let mut distinct = 0;
    for &count in counts {
        total += count;
        distinct += u32::from(count > 0);
        sum += plogp(count);
    }
    if total == 0 {
        return 0.0;
    }
    let n = total as f32;
    let bias = (distinct as f32 - 1.0) * 0.72 / n;
    ((plogp(total) - sum) / n + bias).min(8.0)
}

/// Parts of a chunk that represent the whole.
pub(crate) struct Windows {
    ranges: [Range<usize>; MAX_WINDOWS],
    len: usize,
}

const MAX_WINDOWS: usize = 16;

impl Windows {
    /// `count` windows of about `len` bytes each.
    pub(crate) fn new(raw_len: usize, count: usize, len: usize) -> Self {
        // A multiple of every width considered, so that elements keep their phase.
        const ALIGN: usize = 192;
        let len = len / ALIGN * ALIGN;
        let mut ranges = [const { 0..0 }; MAX_WINDOWS];
        if raw_len <= count * len {
            ranges[0] = 0..raw_len;
            return Windows { ranges, len: 1 };
        }
        let count = count.clamp(2, MAX_WINDOWS);
        for (i, range) in ranges[..count].iter_mut().enumerate() {
            // At unequal distances: a regular sample of a regular grid would be biased.
            let slack = raw_len - len;
            let at = slack * i / (count - 1);
            let at = at.saturating_sub((i * 7919) % (slack / count).max(1));
            let at = at / ALIGN * ALIGN;
            *range = at..at + len;
        }
        Windows { ranges, len: count }
    }
}

impl Windows {
    /// Windows that lie between gaps, if much of the chunk is gaps.
    pub(crate) fn between_gaps(raw: &[u8]) -> Option<Self> {
        const PAGE: usize = 4096;
        let pages = raw.len() / PAGE;
        let is_gap = |page: usize| sparse::is_gap(&raw[page * PAGE + PAGE / 2..]);
        let gaps = (0..pages).filter(|&page| is_gap(page)).count();
        if pages < 8 || gaps * 8 < pages {
            return None;
        }
        let wanted = MAX_WINDOWS.min(pages - gaps);
        // Few windows have to be longer to tell noise from the rest.
        let len = if wanted < 8 { 1920 } else { 960 };
        let mut windows = Windows {
            ranges: [const { 0..0 }; MAX_WINDOWS],
            len: 0,
        };
        for (i, page) in (0..pages).filter(|&page| !is_gap(page)).enumerate() {
            if windows.len < wanted && i * wanted >= windows.len * (pages - gaps) {
                let at = page * PAGE + PAGE / 2;
                windows.ranges[windows.len] = at..at + len;
                windows.len += 1;
            }
        }
        (windows.len > 0).then_some(windows)
    }
}

impl Deref for Windows {
    type Target = [Range<usize>];

    fn deref(&self) -> &Self::Target {
        &self.ranges[..self.len]
    }
}

/// Bits per byte of the sample split into columns of `width`, each plain or
/// byte-delta, whichever is less; and the entropies of first and last column.
pub(crate) fn column_cost(raw: &[u8], windows: &[Range<usize>], width: usize) -> (f32, f32, f32) {
    match width {
        1 => columns_of::<1>(raw, windows, 0, 1),
        2 => columns_of::<2>(raw, windows, 0, 2),
        4 => columns_of::<4>(raw, windows, 0, 4),
        8 => columns_of::<8>(raw, windows, 0, 8),
        _ => {
            // Four columns of a record at a time.
            let mut sum = 0.0;
            let (mut first, mut last) = (0.0, 0.0);
            for at in (0..width).step_by(4) {
                let part = width.min(at + 4) - at;
                let (cost, head, tail) = match part {
                    4 => columns_of::<4>(raw, windows, at, width),
                    3 => columns_of::<3>(raw, windows, at, width),
                    2 => columns_of::<2>(raw, windows, at, width),
                    _ => columns_of::<1>(raw, windows, at, width),
                };
                sum += cost * part as f32;
                if at == 0 {
                    first = head;
                }
                last = tail;
            }
            (sum / width as f32, first, last)
        }
    }
}

/// [`column_cost`] of the `N` columns from `at` on.
fn columns_of<const N: usize>(
    raw: &[u8],
    windows: &[Range<usize>],
    at: usize,
    width: usize,
) -> (f32, f32, f32) {
    let mut plain = [[0u32; 256]; N];
    let mut delta = [[0u32; 256]; N];
    for window in windows {
        let mut before = [0u8; N];
        for element in raw[window.clone()].chunks_exact(width) {
            let Some(bytes) = element.get(at..).and_then(|e| e.first_chunk::<N>()) else {
                continue;
            };
            for column in 0..N {
                plain[column][bytes[column] as usize] += 1;
                delta[column][bytes[column].wrapping_sub(before[column]) as usize] += 1;
            }
            before = *bytes;
        }
    }
    let mut sum = 0.0;
    let mut ends = [0.0; N];
    for column in 0..N {
        ends[column] = entropy(&plain[column]);
        sum += ends[column].min(entropy(&delta[column]));
    }
    (sum / N as f32, ends[0], ends[N - 1])
}

/// The fill value, if the sample has one: a value that repeats exactly and often.
pub(crate) fn fill_value<W: FloatWord>(
    raw: &[u8],
    windows: &[Range<usize>],
    big: bool,
) -> Option<u64> {
    let mut candidate = W::default();
    let mut votes = 0u32;
    for window in windows {
        let mut before = W::default();
        for bytes in raw[window.clone()].chunks_exact(W::BYTES) {
            let word = W::load(bytes, big);
            if word == before {
                if word == candidate {
                    votes += 1;
                } else if votes == 0 {
                    (candidate, votes) = (word, 1);
                } else {
                    votes -= 1;
                }
            }
            before = word;
        }
    }
    if votes == 0 {
        return None;
    }
    let mut found = 0;
    let mut total = 0;
    for window in windows {
        for bytes in raw[window.clone()].chunks_exact(W::BYTES) {
            found += usize::from(W::load(bytes, big) == candidate);
            total += 1;
        }
    }
    (found * 50 >= total).then(|| candidate.to_u64())
}

/// Denominators under which the sample looks decimal: exactly, and nearly.
pub(crate) fn decimal_scales<W: FloatWord>(
    raw: &[u8],
    windows: &[Range<usize>],
    big: bool,
    fill: Option<u64>,
) -> [Option<u8>; 2] {
    let fill = fill.map(W::from_u64);
    let mut found = [None, None];
    for index in 0..DENOMINATORS.len() as u8 {
        let scale = decimal::scale(index);
        let (mut exact, mut near, mut total) = (0, 0, 0);
        for window in windows {
            for bytes in raw[window.clone()].chunks_exact(W::BYTES).step_by(13) {
                let word = W::load(bytes, big);
                if Some(word) == fill {
                    continue;
                }
                let (integer, error, ok) = word.split(scale);
                // An integer as long as the mantissa explains nothing.
                let short = integer.zigzag().to_u64() >> (if W::BYTES == 4 { 23 } else { 46 }) == 0;
                total += 1;
                exact += usize::from(ok & short & (error == 0));
                near += usize::from(ok & short & (error.wrapping_add(16) < 32));
            }
        }
        if total < 32 {
            return found;
        }
        if near * 100 >= total * 93 && found[1].is_none() {
            found[1] = Some(index);
        }
        if exact * 100 >= total * 93 {
            found[0] = Some(index);
            break;
        }
    }
    if found[0] == found[1] {
        found[1] = None;
    }
    found
}

/// Estimates a recipe on the sample, in bits per element: as byte-columns with
/// an order-0 coder each or as classes and extra bits, whichever its scheme says.
pub(crate) fn numeric_cost<W: FloatWord>(
    raw: &[u8],
    windows: &[Range<usize>],
    recipe: &Recipe,
    fill: Option<u64>,
) -> f32 {
    if recipe.scheme == Scheme::Columns {
        cost_of::<W, true>(raw, windows, recipe, fill)
    } else {
        cost_of::<W, false>(raw, windows, recipe, fill)
    }
}

fn cost_of<W: FloatWord, const COLUMNS: bool>(
    raw: &[u8],
    windows: &[Range<usize>],
    recipe: &Recipe,
    fill: Option<u64>,
) -> f32 {
    let big = recipe.big_endian;
    let head = recipe.head as usize;
    let scale = decimal::scale(recipe.scale);
    let fill = fill.map(W::from_u64);
    let strides = predict::strides(recipe.predictor, recipe.row, recipe.plane);
    let taps = predict::Taps::new(strides);
    let slope = Slope::new(recipe);
    let reach = match recipe.map {
        NumberMap::Real => slope.reach(),
        _ => taps.get().iter().map(|tap| tap.0).max().unwrap_or(0),
    };

    let map = |at: usize| -> Option<(W, u8)> {
        let word = W::load(&raw[at..at + W::BYTES], big);
        if Some(word) == fill {
            return None;
        }
        match recipe.map {
            NumberMap::Bytes | NumberMap::Integer | NumberMap::Real => Some((word, 0)),
            NumberMap::Ordered => Some((word.flip(), 0)),
            NumberMap::Decimal => {
                let (integer, error, ok) = word.split(scale);
                ok.then_some((integer, error))
            }
        }
    };

    let mut columns = [[0u32; 256]; 8];
    let mut classes = [0u32; 256];
    let mut errors = [0u32; 256];
    let mut beside = 0usize;
    let (mut total, mut counted, mut listed, mut filled, mut extra) =
        (0usize, 0usize, 0usize, 0usize, 0u64);
    let mut last = (usize::MAX, None);
    for window in windows {
        let mut at = window.start + head;
        while at + W::BYTES <= window.end {
            let here = at;
            at += W::BYTES;
            total += 1;
            // The element before has mostly just been mapped.
            let mapped = map(here);
            let before = std::mem::replace(&mut last, (here, mapped));
            let Some((mut value, error)) = mapped else {
                if Some(W::load(&raw[here..here + W::BYTES], big)) == fill {
                    filled += 1;
                } else {
                    listed += 1;
                }
                continue;
            };
            errors[error as usize] += 1;
            if (here - head) / W::BYTES < reach {
                continue;
            }
            let mut sound = true;
            if recipe.map == NumberMap::Real {
                let before = |back: usize| W::load(&raw[here - back * W::BYTES..][..W::BYTES], big);
                value = value.flip().sub(slope.predict(before).flip());
            }
            let taps = if recipe.map == NumberMap::Real {
                &[]
            } else {
                taps.get()
            };
            for &(back, minus) in taps {
                let there = here - back * W::BYTES;
                let other = if there == before.0 {
                    before.1
                } else {
                    map(there)
                };
                match other {
                    Some((other, _)) => {
                        value = if minus {
                            value.sub(other)
                        } else {
                            value.add(other)
                        }
                    }
                    None => {
                        sound = false;
                        break;
                    }
                }
            }
            if !sound {
                beside += 1;
                continue;
            }
            let residual = if recipe.predictor == Predictor::Xor {
                let before = if here >= head + W::BYTES {
                    map(here - W::BYTES)
                } else {
                    None
                };
                before.map_or(value, |(before, _)| value.xor(before))
            } else {
                value.zigzag()
            };
            let residual = residual.to_u64();
            if COLUMNS {
                for (b, counts) in columns.iter_mut().take(W::BYTES).enumerate() {
                    counts[(residual >> (8 * b)) as u8 as usize] += 1;
                }
            } else {
                let (class, bits) = classes::class(residual);
                classes[class as usize] += 1;
                extra += u64::from(bits);
            }
            counted += 1;
        }
    }
    if counted < 16 {
        return f32::INFINITY;
    }
    let share = |part: usize| part as f32 / total as f32;
    let kept = share(total - listed - filled);
    let aside = share(listed) * (8.0 * W::BYTES as f32 + 10.0)
        + if recipe.map == NumberMap::Decimal {
            entropy(&errors) * kept
        } else {
            0.0
        };
    // Beside a gap the prediction is worse than the sample shows.
    let aside = aside + share(beside) * 3.0;
    let bits = if COLUMNS {
        columns.iter().take(W::BYTES).map(entropy).sum()
    } else {
        entropy(&classes) + extra as f32 / counted as f32
    };
    bits * kept + aside
}
