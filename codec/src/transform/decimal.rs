//! Floats that represent decimal numbers.
//!
//! Measured and tabulated values are mostly a small integer over a round
//! denominator, rounded to the nearest float, sometimes with an error of a few units
//! in the last place from an earlier calculation. Such an element is kept as
//! the integer and that error; both are far shorter than the float's bits.
#![forbid(unsafe_code)]

use crate::frame::DENOMINATORS;
use crate::transform::word::Word;

/// Adding and subtracting it rounds to the nearest integer, ties to even, as
/// long as the operand is below 2^51 in magnitude.
const ROUNDER: f64 = 6_755_399_441_055_744.0;

/// The denominator of an index; one for an index out of range, which the
/// directory's check refuses.
pub(crate) fn scale(index: u8) -> f64 {
    DENOMINATORS.get(index as usize).copied().unwrap_or(1.0)
}

/// A word that holds the bits of a float.
pub(crate) trait FloatWord: Word {
    /// Integer, error in units of the last place as a byte, and whether the
    /// two give the element back. Without branches, so that it vectorises.
    fn split(self, scale: f64) -> (Self, u8, bool);
    /// Undoes [`split`](FloatWord::split).
    fn join_decimal(integer: Self, error: u8, scale: f64) -> Self;
    /// The sum, as floats.
    fn float_add(self, other: Self) -> Self;
    /// The difference, as floats.
    fn float_sub(self, other: Self) -> Self;
    /// Whether sums and differences of eight like it are finite.
    fn is_tame(self) -> bool;
}

impl FloatWord for u32 {
    #[inline(always)]
    fn split(self, scale: f64) -> (Self, u8, bool) {
        let scaled = f64::from(f32::from_bits(self)) * scale;
        let fits = scaled.abs() < 1_073_741_824.0;
        let scaled = if fits { scaled } else { 0.0 };
        let rounded = (scaled + ROUNDER) - ROUNDER;
        let back = ((rounded / scale) as f32).to_bits();
        let error = self.flip().wrapping_sub(back.flip());
        let small = error.wrapping_add(128) < 256;
        // In range by the test above, where the low half of the rounder's sum is the integer.
        let integer = (scaled + ROUNDER).to_bits() as u32;
        (integer, error as u8, fits & small)
    }

    #[inline(always)]
    fn join_decimal(integer: Self, error: u8, scale: f64) -> Self {
        let back = ((f64::from(integer as i32) / scale) as f32).to_bits();
        back.flip().wrapping_add(error as i8 as u32).flip()
    }

    #[inline(always)]
    fn float_add(self, other: Self) -> Self {
        (f32::from_bits(self) + f32::from_bits(other)).to_bits()
    }

    #[inline(always)]
    fn float_sub(self, other: Self) -> Self {
        (f32::from_bits(self) - f32::from_bits(other)).to_bits()
    }

    #[inline(always)]
    fn is_tame(self) -> bool {
        self & (Self::MAX >> 1) < 251 << 23
    }
}

impl FloatWord for u64 {
    #[inline(always)]
    fn split(self, scale: f64) -> (Self, u8, bool) {
        let scaled = f64::from_bits(self) * scale;
        let fits = scaled.abs() < 1_125_899_906_842_624.0;
        let scaled = if fits { scaled } else { 0.0 };
        let rounded = (scaled + ROUNDER) - ROUNDER;
        let back = (rounded / scale).to_bits();
        let error = self.flip().wrapping_sub(back.flip());
        let small = error.wrapping_add(128) < 256;
        let integer = (scaled + ROUNDER).to_bits().wrapping_sub(ROUNDER.to_bits());
        (integer, error as u8, fits & small)
    }

    #[inline(always)]
    fn join_decimal(integer: Self, error: u8, scale: f64) -> Self {
        let back = (integer as i64 as f64 / scale).to_bits();
        back.flip().wrapping_add(error as i8 as u64).flip()
    }

    #[inline(always)]
    fn float_add(self, other: Self) -> Self {
        (f64::from_bits(self) + f64::from_bits(other)).to_bits()
    }

    #[inline(always)]
    fn float_sub(self, other: Self) -> Self {
        (f64::from_bits(self) - f64::from_bits(other)).to_bits()
    }

    #[inline(always)]
    fn is_tame(self) -> bool {
        self & (Self::MAX >> 1) < 2043 << 52
    }
}

macro_rules! never {
    ($type:ty) => {
        impl FloatWord for $type {
            fn split(self, _: f64) -> (Self, u8, bool) {
                (self, 0, false)
            }

            fn join_decimal(integer: Self, _: u8, _: f64) -> Self {
                integer
            }

            fn float_add(self, _: Self) -> Self {
                self
            }

            fn float_sub(self, _: Self) -> Self {
                self
            }

            fn is_tame(self) -> bool {
                false
            }
        }
    };
}

// There are no floats of these widths; the directory's check refuses them.
never!(u8);
never!(u16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_split_into_small_integers() {
        let most = if cfg!(miri) { 300 } else { 30_000 };
        for i in -most..most {
            let x = (f64::from(i) / 1000.0) as f32;
            let (integer, error, ok) = x.to_bits().split(1000.0);
            assert!(ok && integer as i32 == i && error == 0, "{x}");
            assert_eq!(u32::join_decimal(integer, error, 1000.0), x.to_bits());
            let x = f64::from(i) / 1e7;
            let (integer, error, ok) = x.to_bits().split(1e7);
            assert!(ok && integer as i64 == i64::from(i) && error == 0, "{x}");
            assert_eq!(u64::join_decimal(integer, error, 1e7), x.to_bits());
        }
    }

    #[test]
    fn what_splits_joins_for_any_bits() {
        let mut seed = 1u64;
        for _ in 0..if cfg!(miri) { 300 } else { 200_000 } {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let bits = seed ^ (seed >> 29);
            for exponent in [0, 12, 21] {
                let scale = DENOMINATORS[exponent];
                let narrow = (bits >> 32) as u32;
                for narrow in [narrow, narrow & 0xC7FF_FFFF, narrow & 0x8000_0003] {
                    let (integer, error, ok) = narrow.split(scale);
                    assert!(
                        !ok || u32::join_decimal(integer, error, scale) == narrow,
                        "{narrow:x}"
                    );
                }
                for wide in [bits, bits & 0xC1FF_FFFF_FFFF_FFFF, bits & (1 << 63)] {
                    let (integer, error, ok) = wide.split(scale);
                    assert!(
                        !ok || u64::join_decimal(integer, error, scale) == wide,
                        "{wide:x}"
                    );
                }
            }
        }
    }
}
