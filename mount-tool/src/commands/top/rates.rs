//! From two samples to what happens per second.

use serde::Serialize;
use shale_fs::live::{Live, Traffic};

/// What happened between two samples. Bytes and counts are per second.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
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
    /// What programs did with files, the busiest first.
    pub(super) files: Vec<FileRates>,
}

/// Bytes per second of one file.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct FileRates {
    pub(super) path: String,
    pub(super) read: f64,
    pub(super) written: f64,
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
            errors: rate(|live| live.errors.iter().map(|error| error.count).sum()),
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
            files: Self::of_files(before, after, seconds),
        }
    }

    /// In the same time as everything else, so that the files add up to the whole.
    fn of_files(before: &Live, after: &Live, seconds: f64) -> Vec<FileRates> {
        let mut files: Vec<FileRates> = Vec::new();
        for file in &after.busiest {
            let now = file.traffic;
            let then = before.traffic.iter().find(|old| old.inode == now.inode);
            let then = match then {
                _ if now.age < seconds => Traffic::default(),
                Some(then) => *then,
                // It was not among those that were followed; next time it is.
                None => continue,
            };
            let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
            let rates = FileRates {
                path: file.path.clone(),
                read: rate(now.read, then.read),
                written: rate(now.written, then.written),
            };
            if rates.all() > 0.0 {
                files.push(rates);
            }
        }
        files.sort_by(|a, b| b.all().total_cmp(&a.all()));
        files
    }
}

impl FileRates {
    fn all(&self) -> f64 {
        self.read + self.written
    }
}

#[cfg(test)]
mod tests {
    use shale_fs::live::BusyFile;

    use super::*;

    #[test]
    fn files_are_measured_between_the_samples() {
        let traffic = |inode, written, age| Traffic {
            inode,
            read: 0,
            written,
            age,
        };
        let before = Live {
            uptime: 10.0,
            traffic: vec![traffic(1, 1000, 9.0), traffic(2, 500, 9.0)],
            ..Live::default()
        };
        let busy = |name: &str, traffic| BusyFile {
            path: name.to_owned(),
            traffic,
        };
        let after = Live {
            uptime: 12.0,
            busiest: vec![
                busy("old", traffic(1, 1200, 11.0)),
                busy("at rest", traffic(2, 500, 11.0)),
                busy("new", traffic(3, 4000, 1.0)),
                busy("out of sight", traffic(4, 4000, 11.0)),
            ],
            ..Live::default()
        };
        let rates = Rates::between(&before, &after);
        let files: Vec<(&str, f64)> = rates
            .files
            .iter()
            .map(|file| (file.path.as_str(), file.written))
            .collect();
        assert_eq!(files, [("new", 2000.0), ("old", 100.0)]);
    }

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
