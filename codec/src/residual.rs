//! Residuals as magnitude classes and extra bits.
//!
//! A zigzagged residual below 16 is a class of its own; a larger one belongs
//! to the class of its highest bit and the two bits below it, and the rest of
//! its bits are stored as they are, because within a class nothing is left to
//! be gained. Classes are range-coded by [`crate::rans`] under a context:
//! how large the residuals to the west (two before) and to the north were.
//!
//! ```text
//! residual   0 .. 15   16..19  20..23  24..27  28..31   32..39 ...
//! class      0 .. 15   16      17      18      19       20     ...
//! extra bits 0         2       2       2       2        3      ...
//! ```
#![forbid(unsafe_code)]

use crate::frame::Recipe;
use crate::rans::{self, Contexts, LANES, lane_len, second_neighbour};
use crate::word::Word;
use crate::{Error, simd};

/// Bits below the highest that take part in the class.
const FINE: u32 = 2;
/// Residuals below are their own class.
const SMALL: u64 = 16;

#[inline(always)]
fn class(residual: u64) -> (u8, u32) {
    // Without a branch: small and large mix in ways that nobody can predict.
    let small = u64::from(residual < SMALL).wrapping_neg();
    let top = 63 - (residual | SMALL).leading_zeros();
    let fine = (residual >> (top - FINE)) & ((1 << FINE) - 1);
    let large = SMALL + ((u64::from(top) - 4) << FINE) + fine;
    (
        ((residual & small) | (large & !small)) as u8,
        (top - FINE) & !small as u32,
    )
}

/// Smallest residual of a class and the number of its extra bits.
const fn class_base(class: u8) -> (u64, u32) {
    let class = class as u64;
    if class < SMALL {
        return (class, 0);
    }
    let top = ((class - SMALL) >> FINE) + 4;
    let fine = (class - SMALL) & ((1 << FINE) - 1);
    (
        ((1 << FINE) + fine) << (top - FINE as u64),
        top as u32 - FINE,
    )
}

const BASES: [(u64, u32); 256] = {
    let mut bases = [(0, 0); 256];
    let mut class = 0;
    while class < 256 {
        bases[class] = class_base(class as u8);
        class += 1;
    }
    bases
};

/// The same in one word, the number of bits in the upper half, for classes of
/// elements of up to four bytes; hostile ones get what bits there are.
const NARROW: [u64; 256] = {
    let mut narrow = [0; 256];
    let mut class = 0;
    while class < 256 {
        let (base, len) = BASES[class];
        narrow[class] = base & 0xFFFF_FFFF | (len as u64) << 32;
        class += 1;
    }
    narrow
};

/// Bytes of a [`Window`]: eight residuals have up to 29 extra bits each, and the last one is cut
/// out of eight bytes.
const WINDOW: usize = 39;

/// Bits of storage of a residual, its class not counted.
#[inline(always)]
pub(crate) fn class_of(residual: u64) -> (u8, u32) {
    class(residual)
}

/// Scratch memory of [`encode`] and [`decode`].
#[derive(Default)]
pub(crate) struct ResidualScratch {
    classes: Vec<u8>,
    contexts: Vec<u8>,
    rans: rans::Scratch,
}

/// The row length that contexts may rely on: none where exceptions have been
/// taken out, because the elements then no longer lie in rows.
pub(crate) fn context_row(recipe: &Recipe, whole: bool) -> usize {
    if whole { recipe.row as usize } else { 0 }
}

/// Appends the coded classes to `coded` and replaces `extra` by the extra bits.
pub(crate) fn encode<W: Word>(
    residuals: &[W],
    row: usize,
    scratch: &mut ResidualScratch,
    coded: &mut Vec<u8>,
    extra: &mut Vec<u8>,
) {
    let classes = &mut scratch.classes;
    classes.clear();
    classes.resize(residuals.len(), 0);
    simd::split_residuals(residuals, classes, extra);
    let far = second_neighbour(row, classes.len());
    let mut contexts = Contexts::fit(classes, far);
    contexts.assign(classes, far, &mut scratch.contexts);
    rans::encode(
        &mut contexts,
        classes,
        &mut scratch.contexts,
        &mut scratch.rans,
        coded,
    );
}

/// Splits residuals into classes, in their order, and extra bits, in the order
/// in which a decoder gets the classes.
#[inline(always)]
pub(crate) fn split<W: Word>(residuals: &[W], classes: &mut [u8], extra: &mut Vec<u8>) {
    extra.clear();
    extra.resize(residuals.len() * W::BYTES + 16, 0);
    let mut writer = BitWriter {
        bits: 0,
        filled: 0,
        at: 0,
    };
    let mut put = |residual: W, to: &mut u8| {
        let residual = residual.to_u64();
        let (class, len) = class(residual);
        *to = class;
        if W::BYTES <= 4 {
            writer.put(residual & ((1 << len) - 1), len, extra);
        } else {
            let low = len.min(32);
            writer.put(residual & ((1 << low) - 1), low, extra);
            let high = len - low;
            writer.put((residual >> low) & ((1 << high) - 1), high, extra);
        }
    };
    // In the order in which the decoder gets the classes.
    let lane = lane_len(residuals.len());
    for at in 0..lane {
        for at in (0..LANES).map(|k| k * lane + at) {
            put(residuals[at], &mut classes[at]);
        }
    }
    for at in lane * LANES..residuals.len() {
        put(residuals[at], &mut classes[at]);
    }
    writer.finish(extra);
}

/// Fills `residuals` from coded classes and extra bits.
pub(crate) fn decode<W: Word>(
    coded: &[u8],
    extra: &[u8],
    row: usize,
    scratch: &mut ResidualScratch,
    residuals: &mut [W],
) -> Result<(), Error> {
    let classes = &mut scratch.classes;
    classes.resize(residuals.len(), 0);
    let far = second_neighbour(row, classes.len());
    rans::decode(coded, far, &mut scratch.rans, classes)?;
    let mut reader = BitReader::new(extra);
    simd::join_residuals(classes, &mut reader, residuals);
    if reader.at.div_ceil(8) != extra.len() {
        return Err(Error::Malformed("extra bits of unexpected length"));
    }
    Ok(())
}

/// Undoes [`split`], the classes as the decoder gets them.
#[inline(always)]
pub(crate) fn join<W: Word>(classes: &[u8], reader: &mut BitReader<'_>, residuals: &mut [W]) {
    let lane = lane_len(residuals.len());
    let (body, left_over) = residuals.split_at_mut(lane * LANES);
    let (rows, last) = classes.split_at(lane * LANES);
    for (at, row) in rows.as_chunks::<LANES>().0.iter().enumerate() {
        let mut to = at;
        let mut put = |residual: u64| {
            body[to] = W::from_u64(residual);
            to += lane;
        };
        match reader.window().filter(|_| W::BYTES <= 4) {
            Some(mut window) => {
                for &class in row {
                    put(window.residual(class));
                }
                reader.at += window.at - reader.at % 8;
            }
            None => {
                for &class in row {
                    put(reader.residual(class));
                }
            }
        }
    }
    for (residual, &class) in left_over.iter_mut().zip(last) {
        *residual = W::from_u64(reader.residual(class));
    }
}

/// Least significant bit first.
struct BitWriter {
    bits: u64,
    filled: u32,
    at: usize,
}

impl BitWriter {
    /// `len` is at most 32 and `value` has no more bits.
    #[inline(always)]
    fn put(&mut self, value: u64, len: u32, out: &mut [u8]) {
        self.bits |= value << self.filled;
        self.filled += len;
        if self.filled >= 32 {
            out[self.at..self.at + 4].copy_from_slice(&(self.bits as u32).to_le_bytes());
            self.at += 4;
            self.bits >>= 32;
            self.filled -= 32;
        }
    }

    fn finish(self, out: &mut Vec<u8>) {
        let left = self.filled.div_ceil(8) as usize;
        out[self.at..self.at + 8].copy_from_slice(&self.bits.to_le_bytes());
        out.truncate(self.at + left);
    }
}

/// Least significant bit first.
pub(crate) struct BitReader<'a> {
    bytes: &'a [u8],
    /// In bits.
    at: usize,
}

/// The extra bits of a row of classes of elements of up to four bytes, which can be cut out side
/// by side: where each begins depends on those before it by an addition only.
struct Window<'a> {
    bytes: &'a [u8; WINDOW],
    /// In bits.
    at: usize,
}

impl Window<'_> {
    /// The residual of a class.
    #[inline(always)]
    fn residual(&mut self, class: u8) -> u64 {
        let narrow = NARROW[class as usize];
        let len = (narrow >> 32) as u32;
        // Only hostile classes lead further than the last word.
        let byte = self.at / 8 % (WINDOW - 7);
        let mut word = [0; 8];
        word.copy_from_slice(&self.bytes[byte..byte + 8]);
        let bits = u64::from_le_bytes(word) >> (self.at % 8);
        self.at += len as usize;
        (narrow & 0xFFFF_FFFF) | bits & ((1 << len) - 1)
    }
}

impl<'a> BitReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        BitReader { bytes, at: 0 }
    }

    /// At least 57 bits from here on. Beyond the end there are zeros.
    #[inline(always)]
    fn peek(&self) -> u64 {
        let byte = self.at / 8;
        let word = match self
            .bytes
            .get(byte..)
            .and_then(|rest| rest.first_chunk::<8>())
        {
            Some(word) => u64::from_le_bytes(*word),
            None => self.last_word(byte),
        };
        word >> (self.at % 8)
    }

    /// `len` is at most 32.
    #[inline(always)]
    fn get(&mut self, len: u32) -> u64 {
        let value = self.peek() & ((1 << len) - 1);
        self.at += len as usize;
        value
    }

    /// The residual of a class.
    #[inline(always)]
    fn residual(&mut self, class: u8) -> u64 {
        let (base, len) = BASES[class as usize];
        base | if len <= 32 {
            self.get(len)
        } else {
            self.get(32) | self.get(len - 32) << 32
        }
    }

    /// The bits from here on, unless they end before.
    #[inline(always)]
    fn window(&self) -> Option<Window<'a>> {
        let bytes = self.bytes.get(self.at / 8..)?.first_chunk()?;
        Some(Window {
            bytes,
            at: self.at % 8,
        })
    }

    #[cold]
    fn last_word(&self, byte: usize) -> u64 {
        let mut word = [0; 8];
        let rest = self.bytes.get(byte..).unwrap_or(&[]);
        let len = rest.len().min(8);
        word[..len].copy_from_slice(&rest[..len]);
        u64::from_le_bytes(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_cover_every_residual() {
        for residual in (0..5000).chain((0..64).flat_map(|s| [1 << s, (1 << s) - 1, u64::MAX >> s]))
        {
            let (class, len) = class(residual);
            let (base, expected) = class_base(class);
            assert_eq!(len, expected);
            assert!(base <= residual && (residual - base) < 1 << len);
            assert_eq!(base & ((1 << len) - 1), 0);
        }
    }

    fn round<W: Word + std::fmt::Debug>(residuals: &[W], row: usize) {
        let mut scratch = ResidualScratch::default();
        let (mut coded, mut extra) = (vec![9], Vec::new());
        encode(residuals, row, &mut scratch, &mut coded, &mut extra);
        let mut back = vec![W::default(); residuals.len()];
        decode(&coded[1..], &extra, row, &mut scratch, &mut back).unwrap();
        assert!(back == residuals);
    }

    #[test]
    fn residuals_of_any_size_come_back() {
        let mut seed = 7u64;
        let mut next = || {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            seed
        };
        // Miri takes its time.
        let (most, shifts): (usize, &[u32]) = match cfg!(miri) {
            true => (100, &[40]),
            false => (70_000, &[0, 20, 40, 55, 63]),
        };
        for n in [1, 2, 3, 100, 5000, 70_000] {
            for &shift in shifts.iter().filter(|_| n <= most) {
                let wide: Vec<u64> = (0..n).map(|_| next() >> shift >> (next() >> 61)).collect();
                for row in [0, 1, 7, 1000] {
                    if cfg!(miri) && row != 7 {
                        continue;
                    }
                    round(&wide, row);
                    round(&wide.iter().map(|&w| w as u32).collect::<Vec<_>>(), row);
                    round(&wide.iter().map(|&w| w as u16).collect::<Vec<_>>(), row);
                    round(&wide.iter().map(|&w| w as u8).collect::<Vec<_>>(), row);
                }
            }
        }
    }
}
