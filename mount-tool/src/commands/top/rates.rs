//! Rates between two samples.

use serde::Serialize;
use shale_fs::stats::{MountStats, Traffic};

/// Declares [`Rates`]: first counters, whose increase per second is shown, then figures that are
/// computed from several numbers.
macro_rules! rates {
    (
        counters { $($(#[$counter_meta:meta])* $counter:ident = $count:expr;)* }
        computed { $($(#[$meta:meta])* $field:ident: $type:ty,)* }
    ) => {
        /// The rates between two samples. Bytes and counts are per second.
        #[derive(Clone, Debug, Default, PartialEq, Serialize)]
        pub(super) struct Rates {
            /// Seconds between the samples.
            pub(super) seconds: f64,
            $($(#[$counter_meta])* pub(super) $counter: f64,)*
            $($(#[$meta])* pub(super) $field: $type,)*
        }

        impl Rates {
            /// The counters, without the computed figures.
            fn of_counters(before: &MountStats, after: &MountStats, seconds: f64) -> Self {
                Self {
                    seconds,
                    $($counter: grown(before, after, $count) / seconds,)*
                    ..Self::default()
                }
            }
        }
    };
}

rates! {
    counters {
        written = |stats| stats.written;
        read = |stats| stats.read;
        appended = |stats| stats.appended;
        pack_read = |stats| stats.pack_read;
        operations = operations;
        errors = |stats| stats.errors.iter().map(|error| error.count).sum();
        waits = |stats| stats.waits;
        commits = |stats| stats.commits;
        journal_syncs = |stats| stats.journal_syncs;
        /// Raw bytes settled.
        settled = |stats| stats.settle.raw;
    }
    computed {
        /// Raw by stored bytes of data encoded as it was written.
        ratio: Option<f64>,
        /// Share of look-ups that the cache answered.
        hits: Option<f64>,
        /// Seconds that an operation took, on average.
        latency: Option<f64>,
        /// The traffic of files, the busiest first.
        files: Vec<FileRates>,
    }
}

/// Bytes per second of one file.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct FileRates {
    pub(super) path: String,
    pub(super) read: f64,
    pub(super) written: f64,
}

/// The increase of a counter; 0 when the mount was replaced by another one.
fn grown(before: &MountStats, after: &MountStats, count: fn(&MountStats) -> u64) -> f64 {
    count(after).saturating_sub(count(before)) as f64
}

fn operations(stats: &MountStats) -> u64 {
    stats
        .operations
        .iter()
        .map(|operation| operation.count)
        .sum()
}

impl Rates {
    pub(super) fn between(before: &MountStats, after: &MountStats) -> Self {
        // By the clock of the daemon. It starts over when another mount takes the place.
        let seconds = (after.uptime - before.uptime).max(1e-3);
        let grown = |count| grown(before, after, count);
        let share = |part: f64, whole: f64| (whole > 0.0).then(|| part / whole);
        let time = |stats: &MountStats| stats.operations.iter().map(|op| op.seconds).sum::<f64>();
        let hits = grown(|stats| stats.cache_hits);
        let (raw, stored) = (
            grown(|stats| stats.encoded.raw),
            grown(|stats| stats.encoded.stored),
        );
        Self {
            ratio: share(raw, stored),
            hits: share(hits, hits + grown(|stats| stats.cache_misses)),
            latency: share((time(after) - time(before)).max(0.0), grown(operations)),
            files: Self::of_files(before, after, seconds),
            ..Self::of_counters(before, after, seconds)
        }
    }

    /// Over the same time as the totals, so that the files add up to them.
    fn of_files(before: &MountStats, after: &MountStats, seconds: f64) -> Vec<FileRates> {
        let mut files: Vec<FileRates> = Vec::new();
        for file in &after.busiest {
            let now = file.traffic;
            let then = before.traffic.iter().find(|old| old.inode == now.inode);
            let then = match then {
                _ if now.age < seconds => Traffic::default(),
                Some(then) => *then,
                // The first sample did not follow it. The next one does.
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
    use shale_fs::stats::BusyFile;

    use super::*;

    #[test]
    fn files_are_measured_between_the_samples() {
        let traffic = |inode, written, age| Traffic {
            inode,
            read: 0,
            written,
            age,
        };
        let before = MountStats {
            uptime: 10.0,
            traffic: vec![traffic(1, 1000, 9.0), traffic(2, 500, 9.0)],
            ..MountStats::default()
        };
        let busy = |name: &str, traffic| BusyFile {
            path: name.to_owned(),
            traffic,
        };
        let after = MountStats {
            uptime: 12.0,
            busiest: vec![
                busy("old", traffic(1, 1200, 11.0)),
                busy("at rest", traffic(2, 500, 11.0)),
                busy("new", traffic(3, 4000, 1.0)),
                busy("out of sight", traffic(4, 4000, 11.0)),
            ],
            ..MountStats::default()
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
        let before = MountStats {
            uptime: 10.0,
            written: 100,
            cache_hits: 10,
            ..MountStats::default()
        };
        let mut after = MountStats {
            uptime: 12.0,
            written: 1100,
            cache_hits: 13,
            cache_misses: 1,
            ..MountStats::default()
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
