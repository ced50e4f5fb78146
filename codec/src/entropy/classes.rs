//! Residuals as magnitude classes and extra bits.
//!
//! A zigzagged residual below 16 is a class of its own; a larger one belongs
//! to the class of its highest bit and the two bits below it. Its remaining bits
//! are stored uncoded, because within a class they are nearly random.
//!
//! ```text
//! residual   0 .. 15   16..19  20..23  24..27  28..31   32..39 ...
//! class      0 .. 15   16      17      18      19       20     ...
//! extra bits 0         2       2       2       2        3      ...
//! ```
#![forbid(unsafe_code)]

use crate::transform::lanes::{LANES, lane_len};
use crate::transform::word::Word;

/// Bits below the highest that take part in the class.
const FINE: u32 = 2;
/// Residuals below are their own class.
const SMALL: u64 = 16;

/// The class of a residual and the number of its extra bits.
#[inline(always)]
pub(crate) fn class(residual: u64) -> (u8, u32) {
    // Branch-free: the mix of small and large residuals is unpredictable.
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
/// elements of up to four bytes; impossible classes get arbitrary bits.
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

/// Bytes of a [`Window`]: eight residuals have up to 29 extra bits each, and the last is read
/// from eight bytes.
const WINDOW: usize = 39;

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

/// The extra bits of a row of classes of elements of up to four bytes, which can be extracted side
/// by side: the start of each depends on those before it by one addition only.
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
        // Only impossible classes lead beyond the last word.
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

    /// Number of bytes read, the last perhaps in part.
    pub(crate) fn bytes_read(&self) -> usize {
        self.at.div_ceil(8)
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

    /// The bits from here on, if there are enough.
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
}
