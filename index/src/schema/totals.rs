//! Totals of directories: what a counter of the index means for one.

use super::Time;
use crate::encoding::Reader;
use crate::kv::Counter;

/// Everything below a directory, and when its names changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rollup {
    /// Logical bytes.
    pub raw: u64,
    /// Stored bytes.
    pub stored: u64,
    /// Everything that is not a directory.
    pub files: u64,
    /// Directories.
    pub dirs: u64,
}

/// A change of the totals of a directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// Logical bytes.
    pub raw: i64,
    /// Stored bytes.
    pub stored: i64,
    /// Everything that is not a directory.
    pub files: i64,
    /// Directories.
    pub dirs: i64,
}

/// Which sum of a counter is what. The first four count everything below the directory; what of
/// them the directories above do not know yet is counted a second time from `PENDING` on.
const SUBDIRS: usize = 4;
const PENDING: usize = 5;

impl Rollup {
    /// What a counter says. Sparse files can have more bytes together than there are numbers for;
    /// what is added beyond is subtracted again when they go.
    #[must_use]
    pub fn of(counter: &Counter) -> Self {
        let [raw, stored, files, dirs, ..] = counter.sums.map(|sum| sum as u64);
        Self {
            raw,
            stored,
            files,
            dirs,
        }
    }

    /// Reads a record of format 2; `None` when the bytes are not one.
    #[must_use]
    pub fn decode_old(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        if reader.byte()? != 1 {
            return None;
        }
        let rollup = Self {
            raw: reader.varint()?,
            stored: reader.varint()?,
            files: reader.varint()?,
            dirs: reader.varint()?,
        };
        reader.is_empty().then_some(rollup)
    }

    /// Adds a signed difference.
    #[must_use]
    pub fn plus(&self, delta: &Delta) -> Self {
        Self {
            raw: self.raw.wrapping_add_signed(delta.raw),
            stored: self.stored.wrapping_add_signed(delta.stored),
            files: self.files.wrapping_add_signed(delta.files),
            dirs: self.dirs.wrapping_add_signed(delta.dirs),
        }
    }

    /// The difference that adds all of this.
    #[must_use]
    pub fn as_delta(&self) -> Delta {
        Delta {
            raw: self.raw as i64,
            stored: self.stored as i64,
            files: self.files as i64,
            dirs: self.dirs as i64,
        }
    }
}

impl Delta {
    /// The opposite change.
    #[must_use]
    pub fn negated(&self) -> Self {
        Self {
            raw: self.raw.wrapping_neg(),
            stored: self.stored.wrapping_neg(),
            files: self.files.wrapping_neg(),
            dirs: self.dirs.wrapping_neg(),
        }
    }

    /// Both changes together.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self {
            raw: self.raw.wrapping_add(other.raw),
            stored: self.stored.wrapping_add(other.stored),
            files: self.files.wrapping_add(other.files),
            dirs: self.dirs.wrapping_add(other.dirs),
        }
    }

    fn sums(&self) -> [i64; 4] {
        [self.raw, self.stored, self.files, self.dirs]
    }

    /// As an addition to the totals of a directory.
    #[must_use]
    pub fn counter(&self) -> Counter {
        let mut counter = Counter::default();
        counter.sums[..4].copy_from_slice(&self.sums());
        counter
    }

    /// As an addition that the directories above still have to get.
    #[must_use]
    pub fn pending(&self) -> Counter {
        let mut counter = self.counter();
        counter.sums[PENDING..PENDING + 4].copy_from_slice(&self.sums());
        counter
    }
}

/// What the directories above do not know yet of the totals of a directory.
#[must_use]
pub fn pending(counter: &Counter) -> Delta {
    let sums = &counter.sums[PENDING..];
    Delta {
        raw: sums[0],
        stored: sums[1],
        files: sums[2],
        dirs: sums[3],
    }
}

/// Takes from the totals of a directory what the one above has got.
#[must_use]
pub fn passed_on(delta: &Delta) -> Counter {
    let mut counter = Counter::default();
    let passed = delta.negated().sums();
    counter.sums[PENDING..PENDING + 4].copy_from_slice(&passed);
    counter
}

/// A change of the names in a directory: directories more or less, and when.
#[must_use]
pub fn touched(subdirs: i64, now: Time) -> Counter {
    let mut counter = Counter {
        latest: nanoseconds(now),
        ..Counter::default()
    };
    counter.sums[SUBDIRS] = subdirs;
    counter
}

/// Directories in a directory.
#[must_use]
pub fn subdirs(counter: &Counter) -> i64 {
    counter.sums[SUBDIRS]
}

/// A time as a counter notes it.
#[must_use]
pub fn nanoseconds(time: Time) -> i64 {
    let whole = time.secs.saturating_mul(1_000_000_000);
    whole.saturating_add(i64::from(time.nanos))
}

/// The time that a counter has noted.
#[must_use]
pub fn time_of(nanoseconds: i64) -> Time {
    Time {
        secs: nanoseconds.div_euclid(1_000_000_000),
        nanos: nanoseconds.rem_euclid(1_000_000_000) as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_passed_on_stays_counted_and_is_no_longer_pending() {
        let delta = Delta {
            raw: 10,
            stored: -3,
            files: 1,
            dirs: 0,
        };
        let counter = delta.pending();
        assert_eq!(pending(&counter), delta);
        let after = counter.plus(&passed_on(&delta));
        assert_eq!(pending(&after), Delta::default());
        assert_eq!(Rollup::of(&after), Rollup::default().plus(&delta));
    }

    #[test]
    fn times_survive() {
        for (secs, nanos) in [(0, 0), (1_700_000_000, 5), (-1, 999_999_999)] {
            let time = Time { secs, nanos };
            assert_eq!(time_of(nanoseconds(time)), time);
        }
    }
}
