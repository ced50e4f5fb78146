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
/// Distance of the second neighbour where no row length is known.
pub(crate) const NO_ROW: usize = 4;
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
            for (a, b) in classes[far - 2..classes.len() - 2].iter().zip(classes) {
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

    /// The context of every class: the class two before it, not the one just
    /// before, so that two independent chains can be decoded side by side, and
    /// the class `far` before it.
    pub(crate) fn assign(&self, classes: &[u8], far: usize, contexts: &mut Vec<u8>) {
        contexts.clear();
        contexts.resize(classes.len(), self.map[0]);
        let start = far.min(classes.len());
        for at in 2..start {
            contexts[at] = self.map[classes[at - 2] as usize * 2];
        }
        if start < classes.len() {
            let west = &classes[start - 2..];
            for ((to, a), b) in contexts[start..].iter_mut().zip(west).zip(classes) {
                *to = self.map[*a as usize + *b as usize];
            }
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
    let (states, words) = rest.split_at_checked(8).ok_or(SHORT)?;
    let states = [
        u32::from_le_bytes([states[0], states[1], states[2], states[3]]),
        u32::from_le_bytes([states[4], states[5], states[6], states[7]]),
    ];

    let slots = slots.as_slice();
    let map = &contexts.map;
    let mut at = 0;
    let mut step = |state: &mut u32, context: u8| -> u8 {
        let slot = slots[((context as usize & 7) << PRECISION) | (*state & (TOTAL - 1)) as usize];
        // Cannot overflow: frequency is at most 2^11 and the state's upper part below 2^21.
        let next = (((slot >> 8) & 0xFFF) + 1) * (*state >> PRECISION) + (slot >> 20);
        // Both outcomes are computed: which one it is, nobody can predict.
        let word = match words.get(at..at + 2) {
            Some(word) => u32::from(word[0]) | u32::from(word[1]) << 8,
            None => 0,
        };
        let renew = next < LOW;
        *state = if renew { (next << 16) | word } else { next };
        at += usize::from(renew) * 2;
        slot as u8
    };
    let n = classes.len();
    let start = far.min(n);
    let [mut even, mut odd] = states;
    // The two classes before, of either chain.
    let mut west = [0u8; 2];
    for (i, class) in classes[..start].iter_mut().enumerate() {
        let state = if i & 1 == 0 { &mut even } else { &mut odd };
        let context = map[west[i & 1] as usize * 2];
        *class = step(state, context);
        west[i & 1] = *class;
    }
    let mut i = start;
    if far == NO_ROW && n > NO_ROW {
        let mut before = [classes[0], classes[1]];
        let mut pairs = classes[start..].chunks_exact_mut(2);
        for pair in &mut pairs {
            let first = map[west[0] as usize + before[0] as usize];
            let second = map[west[1] as usize + before[1] as usize];
            before = west;
            west[0] = step(&mut even, first);
            west[1] = step(&mut odd, second);
            pair[0] = west[0];
            pair[1] = west[1];
        }
        if let [class] = pairs.into_remainder() {
            *class = step(&mut even, map[west[0] as usize + before[0] as usize]);
        }
        i = n;
    }
    while i < n {
        // No longer than the distance, so that `north` is always decoded already.
        let len = (far & !1).min(n - i);
        let (done, todo) = classes.split_at_mut(i);
        let north = &done[i - far..];
        let mut pairs = todo[..len].chunks_exact_mut(2);
        let mut norths = north.chunks_exact(2);
        if i & 1 == 1 {
            // The pair begins with the odd chain.
            std::mem::swap(&mut even, &mut odd);
            west.swap(0, 1);
        }
        for (pair, north) in (&mut pairs).zip(&mut norths) {
            let first = map[west[0] as usize + north[0] as usize];
            let second = map[west[1] as usize + north[1] as usize];
            west[0] = step(&mut even, first);
            west[1] = step(&mut odd, second);
            pair[0] = west[0];
            pair[1] = west[1];
        }
        if let [class] = pairs.into_remainder() {
            *class = step(&mut even, map[west[0] as usize + north[len - 1] as usize]);
        }
        if i & 1 == 1 {
            std::mem::swap(&mut even, &mut odd);
            west.swap(0, 1);
        }
        i += len;
    }
    let coded_len = words.len();
    let words = words.get(at..).unwrap_or(&[]);
    let states = [even, odd];
    if at > coded_len || !words.is_empty() || states != [LOW; 2] {
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
