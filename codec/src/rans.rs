//! Range coding of classes by static tables, one per context.
//!
//! Two interleaved rANS states of 32 bits that are renewed 16 bits at a time;
//! probabilities are multiples of 1/2048. The blob:
//!
//! | size | field |
//! |---|---|
//! | 1 | number of contexts, 1 to 8 |
//! | 2 each | thresholds between the contexts, one less than their number |
//! | per context | first and last symbol, then the frequency of each between them as LEB128 |
//! | 8 | the two states |
//! | rest | 16-bit words |
#![forbid(unsafe_code)]

use crate::Error;

const PRECISION: u32 = 11;
const TOTAL: u32 = 1 << PRECISION;
const LOW: u32 = 1 << 16;
const MAX_CONTEXTS: usize = 8;
/// Sums of two classes.
const SUMS: usize = 512;

/// A partition of the sums of two neighbouring classes.
pub(crate) struct Contexts {
    map: [u8; SUMS],
    thresholds: [u16; MAX_CONTEXTS - 1],
    len: usize,
}

impl Contexts {
    /// Partitions so that every context is about equally frequent.
    pub(crate) fn fit(classes: &[u8], far: usize) -> Self {
        let wanted = match classes.len() {
            0..4096 => 1,
            4096..16_384 => 3,
            16_384..65_536 => 6,
            _ => MAX_CONTEXTS as u64,
        };
        let mut counts = [0u32; SUMS];
        if far < classes.len() {
            for (a, b) in classes[far - 1..classes.len() - 1].iter().zip(classes) {
                counts[*a as usize + *b as usize] += 1;
            }
        }
        let total: u64 = counts.iter().map(|&c| u64::from(c)).sum();
        let mut thresholds = [0; MAX_CONTEXTS - 1];
        let mut len = 1;
        let mut share = 1;
        let mut below = 0u64;
        for (sum, &count) in counts.iter().enumerate() {
            if below * wanted >= total * share && below > 0 && share < wanted {
                thresholds[len - 1] = sum as u16;
                len += 1;
                // A frequent sum may fill several shares at once.
                share = below * wanted / total.max(1) + 1;
            }
            below += u64::from(count);
        }
        Self::from_thresholds(thresholds, len)
    }

    fn from_thresholds(thresholds: [u16; MAX_CONTEXTS - 1], len: usize) -> Self {
        let mut map = [0; SUMS];
        for (sum, to) in map.iter_mut().enumerate() {
            *to = thresholds[..len - 1]
                .iter()
                .filter(|&&t| sum >= t as usize)
                .count() as u8;
        }
        Contexts {
            map,
            thresholds,
            len,
        }
    }

    /// The context of every class.
    pub(crate) fn assign(&self, classes: &[u8], far: usize, contexts: &mut Vec<u8>) {
        contexts.clear();
        contexts.resize(classes.len(), 0);
        let start = far.min(classes.len());
        for at in 1..start {
            contexts[at] = self.map[classes[at - 1] as usize * 2];
        }
        if start < classes.len() {
            let west = &classes[start - 1..];
            for ((to, a), b) in contexts[start..].iter_mut().zip(west).zip(classes) {
                *to = self.map[*a as usize + *b as usize];
            }
        }
        if let Some(first) = contexts.first_mut() {
            *first = self.map[0];
        }
    }
}

/// Tables and words, reused.
#[derive(Default)]
pub(crate) struct Scratch {
    counts: Vec<[u32; 256]>,
    steps: Vec<[Step; 256]>,
    slots: Vec<u32>,
    words: Vec<u16>,
}

/// What encoding a symbol does to a state.
#[derive(Clone, Copy, Default)]
struct Step {
    frequency: u32,
    start: u32,
    /// 2^shift over the frequency, rounded up: a division by multiplication.
    reciprocal: u64,
}

/// Appends the blob of `classes`.
pub(crate) fn encode(
    contexts: &Contexts,
    classes: &[u8],
    assigned: &[u8],
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) {
    let counts = &mut scratch.counts;
    counts.clear();
    counts.resize(contexts.len, [0; 256]);
    for (&class, &context) in classes.iter().zip(assigned) {
        counts[context as usize][class as usize] += 1;
    }
    out.push(contexts.len as u8);
    for threshold in &contexts.thresholds[..contexts.len - 1] {
        out.extend_from_slice(&threshold.to_le_bytes());
    }
    let steps = &mut scratch.steps;
    steps.clear();
    for counts in counts.iter_mut() {
        normalise(counts);
        let first = counts.iter().position(|&c| c > 0).unwrap_or(0);
        let last = counts.iter().rposition(|&c| c > 0).unwrap_or(0);
        out.push(first as u8);
        out.push(last as u8);
        let mut table = [Step::default(); 256];
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
                // Exact for every state below 2^32: the error of the rounded-up
                // reciprocal stays under one in 2^43 / 2^11.
                let reciprocal = (1u64 << 43).div_ceil(u64::from(frequency));
                table[symbol] = Step {
                    frequency,
                    start,
                    reciprocal,
                };
            }
            start += frequency;
        }
        steps.push(table);
    }

    let words = &mut scratch.words;
    words.clear();
    let mut states = [LOW; 2];
    for at in (0..classes.len()).rev() {
        let step = &steps[assigned[at] as usize & 7][classes[at] as usize];
        let mut state = states[at & 1];
        if u64::from(state) >= u64::from(step.frequency) << (32 - PRECISION) {
            words.push(state as u16);
            state >>= 16;
        }
        let quotient = ((u128::from(state) * u128::from(step.reciprocal)) >> 43) as u32;
        let remainder = state.wrapping_sub(quotient.wrapping_mul(step.frequency));
        states[at & 1] = (quotient << PRECISION) + remainder + step.start;
    }
    for state in states {
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.reserve(words.len() * 2);
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
        // The largest bears the rounding best.
        let Some(largest) = counts.iter_mut().max() else {
            return;
        };
        if sum > TOTAL {
            let cut = (sum - TOTAL).min((*largest / 4).max(1));
            *largest -= cut;
            sum -= cut;
        } else {
            *largest += TOTAL - sum;
            sum = TOTAL;
        }
    }
}

/// Fills `classes` from a blob.
pub(crate) fn decode(
    blob: &[u8],
    far: usize,
    scratch: &mut Scratch,
    classes: &mut [u8],
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
    slots.resize(MAX_CONTEXTS * TOTAL as usize, 0);
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
                *slot = u32::from(symbol) | (frequency - 1) << 8 | (offset as u32) << 20;
            }
            start += frequency;
        }
        if start != TOTAL {
            return Err(Error::Malformed("frequencies fall short of their sum"));
        }
    }
    let (states, mut words) = rest.split_at_checked(8).ok_or(SHORT)?;
    let mut states = [
        u32::from_le_bytes([states[0], states[1], states[2], states[3]]),
        u32::from_le_bytes([states[4], states[5], states[6], states[7]]),
    ];

    let slots = slots.as_slice();
    let step = |state: &mut u32, words: &mut &[u8], context: u8| -> u8 {
        let slot = slots[((context as usize & 7) << PRECISION) | (*state & (TOTAL - 1)) as usize];
        // Cannot overflow: frequency is at most 2^11 and the state's upper part below 2^21.
        *state = ((slot >> 8 & 0xFFF) + 1) * (*state >> PRECISION) + (slot >> 20);
        if *state < LOW {
            if let Some((word, behind)) = words.split_first_chunk::<2>() {
                *state = *state << 16 | u32::from(u16::from_le_bytes(*word));
                *words = behind;
            }
        }
        slot as u8
    };
    let n = classes.len();
    let start = far.min(n);
    let mut west = 0u8;
    for (at, class) in classes[..start].iter_mut().enumerate() {
        let context = contexts.map[west as usize * 2];
        west = step(&mut states[at & 1], &mut words, context);
        *class = west;
    }
    if far == 2 {
        let mut farther = if start > 1 { classes[start - 2] } else { 0 };
        for (offset, class) in classes[start..].iter_mut().enumerate() {
            let context = contexts.map[west as usize + farther as usize];
            farther = west;
            west = step(&mut states[(start + offset) & 1], &mut words, context);
            *class = west;
        }
    } else {
        let mut at = start;
        while at < n {
            // Blocks no longer than the distance to the second neighbour, so that
            // it is always in the part already decoded.
            let len = far.min(n - at);
            let (done, todo) = classes.split_at_mut(at);
            for (offset, (class, north)) in
                todo[..len].iter_mut().zip(&done[at - far..]).enumerate()
            {
                let context = contexts.map[west as usize + *north as usize];
                west = step(&mut states[(at + offset) & 1], &mut words, context);
                *class = west;
            }
            at += len;
        }
    }
    if !words.is_empty() || states != [LOW; 2] {
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
