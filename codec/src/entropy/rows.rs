//! The inner loops of rANS: classes of all lanes, row by row.
#![forbid(unsafe_code)]

use crate::entropy::contexts::{MAX_CONTEXTS, NO_ROW, PRECISION, SUMS, first_row};
use crate::transform::lanes::{LANES, lane_len};

/// Sum of the frequencies of a context.
pub(crate) const TOTAL: u32 = 1 << PRECISION;
/// States are at least this, and less than 2^32 times as much.
pub(crate) const LOW: u64 = 1 << 31;

/// The effect of encoding a symbol on a state.
#[derive(Clone, Copy, Default)]
pub(crate) struct EncodeStep {
    /// One over the frequency: a division by multiplication and shift.
    reciprocal: u64,
    frequency: u32,
    start: u32,
    shift: u32,
}

impl EncodeStep {
    pub(crate) fn new(frequency: u32, start: u32) -> Self {
        if frequency == 1 {
            // The product below is one less than the state; `start` compensates.
            return EncodeStep {
                reciprocal: u64::MAX,
                frequency,
                start: start + TOTAL - 1,
                shift: 0,
            };
        }
        // Exact for states below 2^63: rounded up, the reciprocal is too large
        // by less than 2^log parts in 2^(log + 63).
        let log = frequency.next_power_of_two().ilog2();
        EncodeStep {
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

/// Encodes the classes, last to first.
#[inline(always)]
pub(crate) fn encode_rows(
    steps: &[[EncodeStep; 256]; MAX_CONTEXTS],
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
        // Branch-free: the direction is unpredictable.
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
    let classes = Classes { bases, slots };
    let mut west = [0u8; LANES];
    if bases.last() == Some(&0) {
        // One context: neighbours do not matter.
        for pair in rows.as_chunks_mut().0 {
            step_all::<NONE>(&classes, states, &west, &ALONE, pair, words);
        }
        return;
    }
    let lane = rows.len() / LANES;
    let start = first_row(far, lane);
    for pair in rows[..start * LANES].as_chunks_mut().0 {
        step_all::<WEST>(&classes, states, &west, &ALONE, pair, words);
        west.copy_from_slice(&pair[LANES..]);
    }
    if far == NO_ROW {
        // The pair before is the north of the next.
        let (before, these) = rows.split_at_mut(start * LANES);
        let mut north = before.last_chunk().copied().unwrap_or(ALONE);
        for pair in these.as_chunks_mut().0 {
            step_all::<BOTH>(&classes, states, &west, &north, pair, words);
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
            step_all::<BOTH>(&classes, states, &west, north, pair, words);
            west.copy_from_slice(&pair[LANES..]);
        }
        done += len;
    }
}

/// More than are used, so that no index needs a bounds check.
pub(crate) const SLOTS: usize = 1 << 16;

/// Two rows of lanes.
type Pair = [u8; 2 * LANES];
const ALONE: Pair = [0; 2 * LANES];

/// Neighbours that take part in the context.
const NONE: u8 = 0;
const WEST: u8 = 1;
const BOTH: u8 = 2;

/// Decodes a class; returns it and the state behind it, not refilled yet. `base`
/// is where the slots of the context begin.
#[inline(always)]
pub(crate) fn step(slots: &[u32; SLOTS], state: u64, base: u16) -> (u8, u64) {
    let slot = slots[usize::from(base | state as u16 & (TOTAL as u16 - 1))];
    // An impossible state gives wrong classes, never an index out of bounds.
    let next = u64::from((slot >> 8) & 0xFFF)
        .wrapping_mul(state >> PRECISION)
        .wrapping_add(u64::from(slot >> 20));
    (slot as u8, next)
}

/// The tables that decode classes.
struct Classes<'a> {
    /// Where the slots of each context begin.
    bases: &'a [u16; SUMS],
    slots: &'a [u32; SLOTS],
}

/// Decodes two classes from every state. Zeros follow the last word; a valid
/// stream never reads them.
#[inline(always)]
fn step_all<const NEIGHBOURS: u8>(
    &Classes { bases, slots }: &Classes<'_>,
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
    // Row by row, so that independent steps are adjacent.
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
        // Branch-free: the direction is unpredictable.
        let renew = u64::from(*state < LOW);
        *state = *state << (32 * renew) | u64::from(word) & renew.wrapping_neg();
        used += renew as usize;
    }
    *words = words.get(used * 4..).unwrap_or(&[]);
}
