//! The bytes of a counter.
//!
//! ```text
//! u8      0xc1
//! signed  the latest
//! signed  the sums, up to the last that is not zero
//! ```

use super::{Reader, put_signed};
use crate::kv::Counter;

const MARK: u8 = 0xc1;

impl Counter {
    /// The bytes: a mark, the latest, then the sums up to the last that is not zero.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![MARK];
        put_signed(&mut out, self.latest);
        let used = self.sums.iter().rposition(|&sum| sum != 0);
        for &sum in &self.sums[..used.map_or(0, |last| last + 1)] {
            put_signed(&mut out, sum);
        }
        out
    }

    /// Reads what [`Counter::encode`] wrote; `None` for anything else.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        if reader.byte()? != MARK {
            return None;
        }
        let mut counter = Self {
            latest: reader.signed()?,
            ..Self::default()
        };
        for sum in &mut counter.sums {
            if reader.is_empty() {
                break;
            }
            *sum = reader.signed()?;
        }
        reader.is_empty().then_some(counter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::SUMS;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn counters_survive_the_round_trip(sums: [i64; SUMS], latest: i64) {
            let counter = Counter { sums, latest };
            let bytes = counter.encode();
            prop_assert!(bytes.len() <= Counter::MAX_LEN);
            prop_assert_eq!(Counter::decode(&bytes), Some(counter));
        }

        #[test]
        fn arbitrary_bytes_are_no_panic(bytes: Vec<u8>) {
            let _ = Counter::decode(&bytes);
        }
    }
}
