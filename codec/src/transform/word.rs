//! Elements as unsigned integers of their own width.
#![forbid(unsafe_code)]

/// Running sums; `transform::scan` has them as vectors.
pub(crate) trait Scan: Sized {
    /// Replaces differences, zigzagged if `ZIGZAG`, by their sums, continuing from `sum`.
    fn scan<const ZIGZAG: bool>(words: &mut [Self], sum: &mut Self);
}

/// An unsigned integer that an element of 1, 2, 4 or 8 bytes is loaded into.
/// All arithmetic wraps, so every step of a transform is exactly invertible.
pub(crate) trait Word: Copy + Default + Eq + Ord + Scan + 'static {
    const BYTES: usize;
    fn load(bytes: &[u8], big: bool) -> Self;
    fn store(self, bytes: &mut [u8], big: bool);
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    /// Small magnitudes of either sign to small numbers.
    fn zigzag(self) -> Self;
    fn unzigzag(self) -> Self;
    fn to_u64(self) -> u64;
    fn from_u64(value: u64) -> Self;
    /// Bits of a float to an integer whose signed order is the numeric order.
    /// Its own inverse.
    fn flip(self) -> Self;
    /// Byte `b`, the least significant being byte 0.
    fn byte(self, b: usize) -> u8;
    /// Words from byte-columns of their number, least significant first.
    fn join(columns: &[&[u8]; 8], words: &mut [Self]);
}

macro_rules! word {
    ($type:ty, $signed:ty) => {
        impl Word for $type {
            const BYTES: usize = size_of::<$type>();

            #[inline(always)]
            fn load(bytes: &[u8], big: bool) -> Self {
                let mut word = [0; size_of::<$type>()];
                word.copy_from_slice(bytes);
                if big {
                    <$type>::from_be_bytes(word)
                } else {
                    <$type>::from_le_bytes(word)
                }
            }

            #[inline(always)]
            fn store(self, bytes: &mut [u8], big: bool) {
                bytes.copy_from_slice(&if big {
                    self.to_be_bytes()
                } else {
                    self.to_le_bytes()
                });
            }

            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }

            #[inline(always)]
            fn xor(self, other: Self) -> Self {
                self ^ other
            }

            #[inline(always)]
            fn zigzag(self) -> Self {
                (self << 1) ^ ((self as $signed) >> (<$type>::BITS - 1)) as $type
            }

            #[inline(always)]
            fn unzigzag(self) -> Self {
                (self >> 1) ^ (self & 1).wrapping_neg()
            }

            #[inline(always)]
            fn to_u64(self) -> u64 {
                u64::from(self)
            }

            #[inline(always)]
            fn from_u64(value: u64) -> Self {
                value as $type
            }

            #[inline(always)]
            fn flip(self) -> Self {
                self ^ (((self as $signed) >> (<$type>::BITS - 1)) as $type >> 1)
            }

            #[inline(always)]
            fn byte(self, b: usize) -> u8 {
                (self >> (8 * b as u32)) as u8
            }

            #[inline(always)]
            fn join(columns: &[&[u8]; 8], words: &mut [Self]) {
                const BYTES: usize = size_of::<$type>();
                let n = words.len();
                if n == 0 {
                    return;
                }
                // Slices of one length let the compiler drop every bounds check.
                let columns: [&[u8]; BYTES] = std::array::from_fn(|b| &columns[b][..n]);
                for (at, word) in words.iter_mut().enumerate() {
                    let mut joined = 0;
                    for (b, column) in columns.iter().enumerate() {
                        joined |= <$type>::from(column[at]) << (8 * b as u32);
                    }
                    *word = joined;
                }
            }
        }
    };
}

word!(u8, i8);
word!(u16, i16);
word!(u32, i32);
word!(u64, i64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flip_orders_floats_and_undoes_itself() {
        let floats = [
            f32::NEG_INFINITY,
            -1e20,
            -1.0,
            -f32::MIN_POSITIVE,
            -0.0,
            0.0,
            1e-40,
            1.0,
            1e20,
        ];
        for pair in floats.windows(2) {
            let [a, b] = [
                pair[0].to_bits().flip() as i32,
                pair[1].to_bits().flip() as i32,
            ];
            assert!(a < b);
        }
        for bits in [
            0u64,
            1,
            u64::MAX,
            1 << 63,
            f64::NAN.to_bits(),
            0x8000_0000_1234_5678,
        ] {
            assert_eq!(bits.flip().flip(), bits);
            assert_eq!(bits.zigzag().unzigzag(), bits);
        }
    }
}
