//! Range coding of classes by static tables, one per context.
//!
//! The classes are cut into eight lanes of equal and even length, lane k
//! holding those from k times that length on; up to fifteen are left over.
//! Every lane has a rANS state of 64 bits of its own, renewed 32 bits at a time
//! from words that all share; probabilities are multiples of 1/2048. A decoder
//! takes two classes of each lane in turn and then renews its state, so that
//! eight chains of dependences run side by side, and at last the left-over
//! ones, one of each lane in turn. The blob:
//!
//! | size | field |
//! |---|---|
//! | 1 | number of contexts, 1 to 8 |
//! | 2 each | thresholds between the contexts, one less than their number |
//! | per context | first and last symbol, then the frequency of each between them as LEB128 |
//! | 64 | the states |
//! | rest | 32-bit words |
//!
//! The context of a class is the number of thresholds that the sum of two
//! neighbours reaches: the class before and the one a row before, both in the
//! same lane. For the first row of a lane, made even, the class before counts
//! twice; the first of a lane has zeros before it, and the left-over ones as well.
#![forbid(unsafe_code)]

use crate::{Error, simd};

const PRECISION: u32 = 11;
const TOTAL: u32 = 1 << PRECISION;
/// States are at least this, and less than 2^32 times as much.
const LOW: u64 = 1 << 31;
pub(crate) const MAX_CONTEXTS: usize = 8;
/// Chains that are decoded side by side.
pub(crate) const LANES: usize = 8;
/// Distance of the second neighbour where no row length is known.
const NO_ROW: usize = 2;
/// What twice as many contexts have to gain.
const WORTH: f64 = 1.003;
/// Sums of two classes.
pub(crate) const SUMS: usize = 512;

/// A partition of the sums of two neighbouring classes.
pub(crate) struct Contexts {
    map: [u8; SUMS],
    /// Where the slots of the context of a sum begin.
    bases: [u16; SUMS],
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
            // A part is enough to see how the sums lie.
            let step = if classes.len() < 65_536 { 1 } else { 5 };
            let pairs = classes[far - 1..classes.len() - 1].iter().zip(classes);
            for (a, b) in pairs.step_by(step) {
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
            bases: map.map(|context| u16::from(context) << PRECISION),
            thresholds,
            len,
        }
    }

    /// Halves their number as long as next to nothing is lost by it: fewer
    /// tables stay in the innermost cache.
    fn merge(&mut self, counts: &mut Vec<[u32; 256]>, assigned: &mut [u8]) {
        let cost = |counts: &[u32; 256]| -> f64 {
            let total: u32 = counts.iter().sum();
            let plogp = |count: u32| f64::from(count) * f64::from(count.max(1)).log2();
            // The table itself costs about nine bits per class.
            let used = counts.iter().filter(|&&count| count > 0).count();
            plogp(total) - counts.iter().map(|&count| plogp(count)).sum::<f64>() + 9.0 * used as f64
        };
        let mut shift = 0;
        while counts.len() > 1 {
            let joined = |pair: &[[u32; 256]]| -> [u32; 256] {
                std::array::from_fn(|i| pair.iter().map(|counts| counts[i]).sum())
            };
            let before: f64 = counts.iter().map(cost).sum();
            let after: f64 = counts.chunks(2).map(|pair| cost(&joined(pair))).sum();
            if after > before * WORTH {
                break;
            }
            let len = counts.len().div_ceil(2);
            for i in 0..len {
                let end = counts.len().min(2 * i + 2);
                counts[i] = joined(&counts[2 * i..end]);
            }
            counts.truncate(len);
            shift += 1;
        }
        if shift > 0 {
            let mut thresholds = [0; MAX_CONTEXTS - 1];
            for (i, to) in thresholds[..counts.len() - 1].iter_mut().enumerate() {
                *to = self.thresholds[((i + 1) << shift) - 1];
            }
            *self = Self::from_thresholds(thresholds, counts.len());
            for context in assigned {
                *context >>= shift;
            }
        }
    }

    /// The context of every class.
    pub(crate) fn assign(&self, classes: &[u8], far: usize, contexts: &mut Vec<u8>) {
        contexts.clear();
        contexts.resize(classes.len(), self.map[0]);
        let lane = lane_len(classes.len());
        if lane == 0 {
            return;
        }
        let lanes = contexts
            .chunks_exact_mut(lane)
            .zip(classes.chunks_exact(lane));
        for (contexts, classes) in lanes.take(LANES) {
            let start = first_row(far, lane);
            for (to, west) in contexts[1..].iter_mut().zip(&classes[..start - 1]) {
                *to = self.map[*west as usize * 2];
            }
            if start < lane {
                let west = &classes[start - 1..];
                let north = &classes[start - far..];
                for ((to, west), north) in contexts[start..].iter_mut().zip(west).zip(north) {
                    *to = self.map[*west as usize + *north as usize];
                }
            }
        }
    }
}

/// Classes of a lane.
pub(crate) fn lane_len(classes: usize) -> usize {
    (classes / LANES) & !1
}

/// Classes of a lane that have no second neighbour.
fn first_row(far: usize, lane: usize) -> usize {
    far.next_multiple_of(2).min(lane)
}

/// How far back the second neighbour is.
pub(crate) fn second_neighbour(row: usize, classes: usize) -> usize {
    // Where rows are as long as lanes hardly any class would have one.
    if row >= 2 && row <= classes / LANES / 4 {
        row
    } else {
        NO_ROW
    }
}

/// Tables and words, reused.
#[derive(Default)]
pub(crate) struct Scratch {
    counts: Vec<[u32; 256]>,
    spare: Vec<[u32; 256]>,
    steps: Vec<[Step; 256]>,
    slots: Vec<u32>,
    words: Vec<u32>,
}

/// What encoding a symbol does to a state.
#[derive(Clone, Copy, Default)]
pub(crate) struct Step {
    /// One over the frequency: a division by multiplication and shift.
    reciprocal: u64,
    frequency: u32,
    start: u32,
    shift: u32,
}

impl Step {
    pub(crate) fn new(frequency: u32, start: u32) -> Self {
        if frequency == 1 {
            // The product below is one less than the state; the start makes up for it.
            return Step {
                reciprocal: u64::MAX,
                frequency,
                start: start + TOTAL - 1,
                shift: 0,
            };
        }
        // Exact for states below 2^63: rounded up, the reciprocal is too large
        // by less than 2^log parts in 2^(log + 63).
        let log = frequency.next_power_of_two().ilog2();
        Step {
            reciprocal: (1u128 << (log + 63)).div_ceil(u128::from(frequency)) as u64,
            frequency,
            start,
            shift: log - 1,
        }
    }

    #[inline(always)]
    fn apply(&self, state: u64) -> u64 {
        let product = u128::from(state) * u128::from(self.reciprocal);
        let quotient = (product >> 64) as u64 >> self.shift;
        let remainder = state.wrapping_sub(quotient.wrapping_mul(u64::from(self.frequency)));
        (quotient << PRECISION)
            .wrapping_add(remainder)
            .wrapping_add(u64::from(self.start))
    }
}

/// Appends the blob of `classes`.
pub(crate) fn encode(
    contexts: &mut Contexts,
    classes: &[u8],
    assigned: &mut [u8],
    scratch: &mut Scratch,
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
    steps.resize(MAX_CONTEXTS, [Step::default(); 256]);
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
                table[symbol] = Step::new(frequency, start);
            }
            start += frequency;
        }
    }
    let steps: &[[Step; 256]; MAX_CONTEXTS] = match steps.first_chunk() {
        Some(steps) => steps,
        None => return,
    };

    let words = &mut scratch.words;
    let mut states = [LOW; LANES];
    simd::encode_rows(steps, classes, assigned, &mut states, words);
    for state in states {
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.reserve(words.len() * 4);
    for word in words.iter().rev() {
        out.extend_from_slice(&word.to_le_bytes());
    }
}

/// Encodes the classes, last to first.
#[inline(always)]
pub(crate) fn encode_rows(
    steps: &[[Step; 256]; MAX_CONTEXTS],
    classes: &[u8],
    assigned: &[u8],
    states: &mut [u64; LANES],
    words: &mut Vec<u32>,
) {
    let at = |at: usize| &steps[assigned[at] as usize & 7][classes[at] as usize];
    let lane = lane_len(classes.len());
    // At most one word for every two classes, and for each that is left over.
    words.resize(classes.len() / 2 + 2 * LANES, 0);
    let mut used = 0;
    let mut renew = |state: &mut u64, limit: u64| {
        // Without a branch: which way it goes, nobody can predict.
        let full = u64::from(*state >= limit);
        words[used] = *state as u32;
        used += full as usize;
        *state >>= 32 * full;
    };
    for i in (lane * LANES..classes.len()).rev() {
        let state = &mut states[i % LANES];
        let step = at(i);
        renew(state, u64::from(step.frequency) << (63 - PRECISION));
        *state = step.apply(*state);
    }
    for pair in (0..lane).step_by(2).rev() {
        for (k, state) in states.iter_mut().enumerate().rev() {
            let i = k * lane + pair;
            let (first, second) = (at(i), at(i + 1));
            let frequency = u64::from(first.frequency) * u64::from(second.frequency);
            renew(state, frequency << (63 - 2 * PRECISION));
            *state = first.apply(second.apply(*state));
        }
    }
    words.truncate(used);
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

/// Fills `rows` from a blob: one class of every lane after the other, lane by
/// lane in turn, then the left-over ones.
pub(crate) fn decode(
    blob: &[u8],
    far: usize,
    scratch: &mut Scratch,
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
    simd::decode_rows(bases, slots, far, &mut states, &mut words, rows);
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

/// Decodes whole lanes.
#[inline(always)]
pub(crate) fn decode_rows(
    bases: &[u16; SUMS],
    slots: &[u32; SLOTS],
    far: usize,
    states: &mut [u64; LANES],
    words: &mut &[u8],
    rows: &mut [u8],
) {
    let mut west = [0u8; LANES];
    if bases.last() == Some(&0) {
        // One context: no neighbour needs to be looked at.
        for pair in rows.as_chunks_mut().0 {
            step_all::<NONE>(bases, slots, states, &west, &ALONE, pair, words);
        }
        return;
    }
    let lane = rows.len() / LANES;
    let start = first_row(far, lane);
    for pair in rows[..start * LANES].as_chunks_mut().0 {
        step_all::<WEST>(bases, slots, states, &west, &ALONE, pair, words);
        west.copy_from_slice(&pair[LANES..]);
    }
    if far == NO_ROW {
        // The pair before is the north of the next.
        let (before, these) = rows.split_at_mut(start * LANES);
        let mut north = before.last_chunk().copied().unwrap_or(ALONE);
        for pair in these.as_chunks_mut().0 {
            step_all::<BOTH>(bases, slots, states, &west, &north, pair, words);
            west.copy_from_slice(&pair[LANES..]);
            north = *pair;
        }
        return;
    }
    let mut done = start;
    while done < lane {
        // No longer than the distance, so that `north` is always decoded already.
        let len = (far & !1).min(lane - done);
        let (before, these) = rows.split_at_mut(done * LANES);
        let north = before[(done - far) * LANES..].as_chunks().0;
        for (pair, north) in these[..len * LANES].as_chunks_mut().0.iter_mut().zip(north) {
            step_all::<BOTH>(bases, slots, states, &west, north, pair, words);
            west.copy_from_slice(&pair[LANES..]);
        }
        done += len;
    }
}

/// More than are used, so that no index needs a check.
pub(crate) const SLOTS: usize = 1 << 16;

/// Two rows of lanes.
type Pair = [u8; 2 * LANES];
const ALONE: Pair = [0; 2 * LANES];

/// Neighbours that take part in the context.
const NONE: u8 = 0;
const WEST: u8 = 1;
const BOTH: u8 = 2;

/// A class off a state, and the state behind it, not renewed yet. `base` is
/// where the slots of the context begin.
#[inline(always)]
fn step(slots: &[u32; SLOTS], state: u64, base: u16) -> (u8, u64) {
    let slot = slots[usize::from(base | state as u16 & (TOTAL as u16 - 1))];
    // Of hostile states only the low bits are wrong.
    let next = u64::from((slot >> 8) & 0xFFF)
        .wrapping_mul(state >> PRECISION)
        .wrapping_add(u64::from(slot >> 20));
    (slot as u8, next)
}

/// Two classes off every state. Behind the last word there are zeros, which a
/// state that ends where it should never takes.
#[inline(always)]
fn step_all<const NEIGHBOURS: u8>(
    bases: &[u16; SUMS],
    slots: &[u32; SLOTS],
    states: &mut [u64; LANES],
    west: &[u8; LANES],
    north: &Pair,
    pair: &mut Pair,
    words: &mut &[u8],
) {
    let mut spare = [0; 4 * LANES];
    let next: &[u8; 4 * LANES] = match words.first_chunk() {
        Some(next) => next,
        None => {
            spare[..words.len()].copy_from_slice(words);
            &spare
        }
    };
    let base = |west: u8, north: u8| match NEIGHBOURS {
        NONE => 0,
        WEST => bases[west as usize * 2],
        _ => bases[west as usize + north as usize],
    };
    // Row by row, so that what is independent lies close together.
    let (upper, lower) = pair.split_at_mut(LANES);
    for k in 0..LANES {
        (upper[k], states[k]) = step(slots, states[k], base(west[k], north[k]));
    }
    for k in 0..LANES {
        (lower[k], states[k]) = step(slots, states[k], base(upper[k], north[LANES + k]));
    }
    let mut used = 0;
    for state in states.iter_mut() {
        let at = (used & (LANES - 1)) * 4;
        let word = u32::from_le_bytes([next[at], next[at + 1], next[at + 2], next[at + 3]]);
        // Without a branch: which way it goes, nobody can predict.
        let renew = u64::from(*state < LOW);
        *state = *state << (32 * renew) | u64::from(word) & renew.wrapping_neg();
        used += renew as usize;
    }
    *words = words.get(used * 4..).unwrap_or(&[]);
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
