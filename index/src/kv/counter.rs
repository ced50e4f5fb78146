//! Numbers that several sessions add to at the same time.

/// How many sums a counter has.
pub const SUMS: usize = 10;

/// Sums, and the greatest of what was noted. What each sum counts is the caller's business.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Sums of what was added. They wrap around.
    pub sums: [i64; SUMS],
    /// The greatest of what was noted; `i64::MIN` when nothing was.
    pub latest: i64,
}

impl Default for Counter {
    fn default() -> Self {
        Self {
            sums: [0; SUMS],
            latest: i64::MIN,
        }
    }
}

impl Counter {
    /// Bytes that one takes at most.
    pub const MAX_LEN: usize = 1 + 10 * (SUMS + 1);

    /// A counter with one sum.
    #[must_use]
    pub fn of(sum: i64) -> Self {
        let mut counter = Self::default();
        counter.sums[0] = sum;
        counter
    }

    /// Both together.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let mut sums = self.sums;
        for (sum, more) in sums.iter_mut().zip(other.sums) {
            *sum = sum.wrapping_add(more);
        }
        Self {
            sums,
            latest: self.latest.max(other.latest),
        }
    }

    /// Whether adding it changes nothing.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn additions_commute() {
        let (a, b) = (
            Counter {
                latest: 7,
                ..Counter::of(3)
            },
            Counter {
                latest: 5,
                ..Counter::of(-9)
            },
        );
        assert_eq!(a.plus(&b), b.plus(&a));
        assert_eq!(a.plus(&b).latest, 7);
        assert_eq!(a.plus(&Counter::default()), a);
    }
}
