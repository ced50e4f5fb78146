//! From two samples to what happens per second.

use serde::Serialize;
use shale_fs::live::Live;

/// What happened between two samples. Bytes and counts are per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Rates {
    /// Seconds between the samples.
    pub(super) seconds: f64,
    pub(super) written: f64,
    pub(super) read: f64,
    pub(super) appended: f64,
    pub(super) pack_read: f64,
    pub(super) operations: f64,
    pub(super) errors: f64,
    pub(super) waits: f64,
    pub(super) commits: f64,
    pub(super) journal_syncs: f64,
    /// Raw bytes settled.
    pub(super) settled: f64,
    /// Raw by stored bytes of what was encoded as it was written.
    pub(super) ratio: Option<f64>,
    /// Share of look-ups that the cache answered.
    pub(super) hits: Option<f64>,
    /// Seconds that an operation took, on average.
    pub(super) latency: Option<f64>,
}

impl Rates {
    pub(super) fn between(before: &Live, after: &Live) -> Self {
        // By the clock of the daemon; another mount in the same place has begun anew.
        let seconds = (after.uptime - before.uptime).max(1e-3);
        let grown = |pick: fn(&Live) -> u64| pick(after).saturating_sub(pick(before)) as f64;
        let rate = |pick: fn(&Live) -> u64| grown(pick) / seconds;
        let share = |part: f64, whole: f64| (whole > 0.0).then(|| part / whole);
        let count = |live: &Live| live.operations.iter().map(|op| op.count).sum::<u64>();
        let time = |live: &Live| live.operations.iter().map(|op| op.seconds).sum::<f64>();
        let hits = grown(|live| live.cache_hits);
        let operations = count(after).saturating_sub(count(before)) as f64;
        Self {
            seconds,
            written: rate(|live| live.written),
            read: rate(|live| live.read),
            appended: rate(|live| live.appended),
            pack_read: rate(|live| live.pack_read),
            operations: operations / seconds,
            errors: rate(|live| live.errors.iter().map(|(_, count)| count).sum()),
            waits: rate(|live| live.waits),
            commits: rate(|live| live.commits),
            journal_syncs: rate(|live| live.journal_syncs),
            settled: rate(|live| live.settle.raw),
            ratio: share(
                grown(|live| live.encoded.raw),
                grown(|live| live.encoded.stored),
            ),
            hits: share(hits, hits + grown(|live| live.cache_misses)),
            latency: share((time(after) - time(before)).max(0.0), operations),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_become_rates() {
        let before = Live {
            uptime: 10.0,
            written: 100,
            cache_hits: 10,
            ..Live::default()
        };
        let mut after = Live {
            uptime: 12.0,
            written: 1100,
            cache_hits: 13,
            cache_misses: 1,
            ..Live::default()
        };
        after.encoded.raw = 600;
        after.encoded.stored = 200;
        let rates = Rates::between(&before, &after);
        assert_eq!((rates.written, rates.read), (500.0, 0.0));
        assert_eq!((rates.hits, rates.ratio), (Some(0.75), Some(3.0)));
        assert_eq!(rates.latency, None);
        // A mount that was ended and begun again has smaller numbers.
        assert_eq!(Rates::between(&after, &before).written, 0.0);
    }
}
