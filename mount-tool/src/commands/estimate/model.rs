//! Throughput with storage of a given bandwidth.
//!
//! The model of interleaved compression for one machine: of C raw bytes, P do not compress and are
//! stored unchanged; the rest becomes S - P bytes; the codec takes C / T, and the storage moves a
//! byte in 1 / B.
//!
//! ```text
//! base          C/B
//! one by one    C/T + S/B
//! interleaved   max(C/T, P/B) + (S - P)/B
//! ```
//! Reading is the reverse, with the speed of decoding.

use serde::Serialize;

/// The parameters of the model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Model {
    pub(super) raw: f64,
    pub(super) stored: f64,
    /// Bytes that are stored unchanged.
    pub(super) plain: f64,
    /// Raw bytes per second of all cores.
    pub(super) codec: f64,
    /// Bytes per second of the storage.
    pub(super) bandwidth: f64,
}

/// Raw bytes per second, end to end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Throughput {
    pub(super) base: f64,
    pub(super) one_by_one: f64,
    pub(super) interleaved: f64,
}

impl Model {
    pub(super) fn throughput(&self) -> Throughput {
        let codec = self.raw / self.codec.max(1.0);
        let storage = |bytes: f64| bytes.max(0.0) / self.bandwidth.max(1.0);
        let plain = self.plain.min(self.stored);
        let interleaved = codec.max(storage(plain)) + storage(self.stored - plain);
        let rate = |seconds: f64| self.raw / seconds.max(1e-9);
        Throughput {
            base: rate(storage(self.raw)),
            one_by_one: rate(codec + storage(self.stored)),
            interleaved: rate(interleaved),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 bytes of which 40 do not compress and 60 become 30; storage moves 10 a second.
    fn model(codec: f64) -> Throughput {
        Model {
            raw: 100.0,
            stored: 70.0,
            plain: 40.0,
            codec,
            bandwidth: 10.0,
        }
        .throughput()
    }

    #[test]
    fn a_fast_codec_hides_behind_what_does_not_compress() {
        let fast = model(50.0);
        assert_eq!(fast.base, 10.0);
        assert!((fast.one_by_one - 100.0 / 9.0).abs() < 1e-9);
        assert!((fast.interleaved - 100.0 / 7.0).abs() < 1e-9);
    }

    #[test]
    fn a_slow_codec_is_the_bottleneck() {
        let slow = model(10.0);
        assert!((slow.one_by_one - 100.0 / 17.0).abs() < 1e-9);
        assert!((slow.interleaved - 100.0 / 13.0).abs() < 1e-9);
        assert!(slow.interleaved < slow.base * 1.0);
    }
}
