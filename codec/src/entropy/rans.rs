//! Range coding of classes by static tables, one per context.
//!
//! The classes are split into [`lanes`](crate::transform::lanes). Every lane has
//! its own rANS state of 64 bits, refilled 32 bits at a time from words that all
//! lanes share; probabilities are multiples of 1/2048. A decoder takes two
//! classes of each lane in turn and then refills its state, so that eight chains
//! of dependences run side by side. The left-over classes come last, one of each
//! lane in turn. The blob:
//!
//! | size | field |
//! |---|---|
//! | 1 | number of contexts, 1 to 8 |
//! | 2 each | thresholds between the contexts, one less than their number |
//! | per context | first and last symbol, then the frequency of each between them as LEB128 |
//! | 64 | the states |
//! | rest | 32-bit words |
//!
//! [`contexts`](crate::entropy::contexts) says which context a class has,
//! [`rows`](crate::entropy::rows) has the inner loops.
#![forbid(unsafe_code)]

use crate::entropy::contexts::{Contexts, MAX_CONTEXTS};
use crate::entropy::kernels;
use crate::entropy::rows::{EncodeStep, LOW, SLOTS, TOTAL, step};
use crate::error::Error;
use crate::transform::lanes::{LANES, lane_len};

/// Tables and words, reused.
#[derive(Default)]
pub(crate) struct RansScratch {
    counts: Vec<[u32; 256]>,
    spare: Vec<[u32; 256]>,
    steps: Vec<[EncodeStep; 256]>,
    slots: Vec<u32>,
    words: Vec<u32>,
}

/// Appends the blob of `classes`.
pub(crate) fn encode(
    contexts: &mut Contexts,
    classes: &[u8],
    assigned: &mut [u8],
    scratch: &mut RansScratch,
    out: &mut Vec<u8>,
) {
    let counts = &mut scratch.counts;
    counts.clear();
    counts.resize(MAX_CONTEXTS, [0; 256]);
    // Two sets of counters, so that equal neighbours do not wait for each other.
    let spare = &mut scratch.spare;
    spare.clear();
    spare.resize(MAX_CONTEXTS, [0; 256]);
    let mut pairs = classes
        .as_chunks::<2>()
        .0
        .iter()
        .zip(assigned.as_chunks::<2>().0);
    for (class, context) in &mut pairs {
        counts[context[0] as usize & 7][class[0] as usize] += 1;
        spare[context[1] as usize & 7][class[1] as usize] += 1;
    }
    if let (Some(&class), Some(&context), 1) = (classes.last(), assigned.last(), classes.len() % 2)
    {
        counts[context as usize & 7][class as usize] += 1;
    }
    for (count, more) in counts.iter_mut().flatten().zip(spare.iter().flatten()) {
        *count += more;
    }
    counts.truncate(contexts.len);
    contexts.merge(counts, assigned);
    let assigned = &*assigned;
    out.push(contexts.len as u8);
    for threshold in &contexts.thresholds[..contexts.len - 1] {
        out.extend_from_slice(&threshold.to_le_bytes());
    }
    let steps = &mut scratch.steps;
    steps.clear();
    steps.resize(MAX_CONTEXTS, [EncodeStep::default(); 256]);
    for (counts, table) in counts.iter_mut().zip(steps.iter_mut()) {
        normalise(counts);
        let first = counts.iter().position(|&c| c > 0).unwrap_or(0);
        let last = counts.iter().rposition(|&c| c > 0).unwrap_or(0);
        out.push(first as u8);
        out.push(last as u8);
        let mut start = 0;
        for symbol in first..=last {
            let frequency = counts[symbol];
            if frequency >= 0x80 {
                out.push(frequency as u8 | 0x80);
                out.push((frequency >> 7) as u8);
            } else {
                out.push(frequency as u8);
            }
            if frequency > 0 {
                table[symbol] = EncodeStep::new(frequency, start);
            }
            start += frequency;
        }
    }
    let steps: &[[EncodeStep; 256]; MAX_CONTEXTS] = match steps.first_chunk() {
        Some(steps) => steps,
        None => return,
    };

    let words = &mut scratch.words;
    let mut states = [LOW; LANES];
    kernels::encode_rows(steps, classes, assigned, &mut states, words);
    for state in states {
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.reserve(words.len() * 4);
    for word in words.iter().rev() {
        out.extend_from_slice(&word.to_le_bytes());
    }
}

/// Scales counts to a sum of [`TOTAL`], none of them to zero.
fn normalise(counts: &mut [u32; 256]) {
    let total: u64 = counts.iter().map(|&c| u64::from(c)).sum();
    if total == 0 {
        counts[0] = TOTAL;
        return;
    }
    let mut sum = 0;
    for count in counts.iter_mut().filter(|c| **c > 0) {
        let scaled = (u64::from(*count) * u64::from(TOTAL) + total / 2) / total;
        *count = (scaled as u32).max(1);
        sum += *count;
    }
    while sum != TOTAL {
        // Rounding costs the largest count least.
        let Some(largest) = counts.iter_mut().max() else {
            return;
        };
        if sum > TOTAL {
            let excess = (sum - TOTAL).min((*largest / 4).max(1));
            *largest -= excess;
            sum -= excess;
        } else {
            *largest += TOTAL - sum;
            sum = TOTAL;
        }
    }
}

/// Fills `rows` from a blob: one class of every lane after the other, lane by
/// lane in turn, then the left-over ones.
pub(crate) fn decode(
    blob: &[u8],
    far: usize,
    scratch: &mut RansScratch,
    rows: &mut [u8],
) -> Result<(), Error> {
    const SHORT: Error = Error::Malformed("class tables end early");
    let mut rest = blob;
    let mut byte = || {
        let (&first, behind) = rest.split_first().ok_or(SHORT)?;
        rest = behind;
        Ok::<u8, Error>(first)
    };
    let len = byte()? as usize;
    if !(1..=MAX_CONTEXTS).contains(&len) {
        return Err(Error::Malformed("impossible number of contexts"));
    }
    let mut thresholds = [0; MAX_CONTEXTS - 1];
    for threshold in &mut thresholds[..len - 1] {
        *threshold = u16::from_le_bytes([byte()?, byte()?]);
    }
    let contexts = Contexts::from_thresholds(thresholds, len);
    let slots = &mut scratch.slots;
    slots.resize(SLOTS, 0);
    for table in slots.chunks_exact_mut(TOTAL as usize).take(len) {
        let first = byte()?;
        let last = byte()?;
        let mut start = 0;
        for symbol in first..=last {
            let mut frequency = u32::from(byte()?);
            if frequency >= 0x80 {
                frequency = (frequency & 0x7F) | u32::from(byte()?) << 7;
            }
            let range = table
                .get_mut(start as usize..(start + frequency) as usize)
                .ok_or(Error::Malformed("frequencies exceed their sum"))?;
            for (offset, slot) in range.iter_mut().enumerate() {
                *slot = u32::from(symbol) | frequency << 8 | (offset as u32) << 20;
            }
            start += frequency;
        }
        if start != TOTAL {
            return Err(Error::Malformed("frequencies fall short of their sum"));
        }
    }
    let (bytes, mut words) = rest.split_at_checked(8 * LANES).ok_or(SHORT)?;
    let mut states = [0u64; LANES];
    for (state, bytes) in states.iter_mut().zip(bytes.as_chunks().0) {
        *state = u64::from_le_bytes(*bytes);
    }
    let Some(slots) = slots.first_chunk::<SLOTS>() else {
        return Err(SHORT);
    };
    let bases = &contexts.bases;
    let (rows, left_over) = rows.split_at_mut(lane_len(rows.len()) * LANES);
    kernels::decode_rows(bases, slots, far, &mut states, &mut words, rows);
    for (i, class) in left_over.iter_mut().enumerate() {
        let state = &mut states[i % LANES];
        (*class, *state) = step(slots, *state, bases[0]);
        if *state < LOW {
            let (word, rest) = words.split_first_chunk::<4>().ok_or(SHORT)?;
            *state = *state << 32 | u64::from(u32::from_le_bytes(*word));
            words = rest;
        }
    }
    if !words.is_empty() || states != [LOW; LANES] {
        return Err(Error::Malformed("classes do not end where they should"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_always_sum_up() {
        let mut counts = [0; 256];
        for (i, count) in counts.iter_mut().enumerate() {
            *count = if i == 3 { 10_000_000 } else { 1 };
        }
        normalise(&mut counts);
        assert_eq!(counts.iter().sum::<u32>(), TOTAL);
        assert!(counts.iter().all(|&c| c > 0));
        let mut counts = [0; 256];
        counts[9] = 5;
        normalise(&mut counts);
        assert_eq!(counts[9], TOTAL);
    }
}
