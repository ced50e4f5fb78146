//! How long operations took, by kind.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use shale_tests::{Context, Outcome};

/// Buckets end at powers of two of microseconds.
const BUCKETS: usize = 40;

/// Times of one kind of operation.
#[derive(Clone, Debug)]
struct Times {
    buckets: [u64; BUCKETS],
    most: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Times {
            buckets: [0; BUCKETS],
            most: Duration::ZERO,
        }
    }
}

/// Times of all kinds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latencies(BTreeMap<String, Times>);

impl Latencies {
    /// Runs an operation and records how long it took.
    pub(crate) fn time<T>(&mut self, kind: &str, work: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let done = work();
        let took = begun.elapsed();
        let times = self.0.entry(kind.to_owned()).or_default();
        let bucket = 64 - (took.as_micros() as u64).leading_zeros() as usize;
        times.buckets[bucket.min(BUCKETS - 1)] += 1;
        times.most = times.most.max(took);
        done
    }

    /// A line for each kind, to be read by [`Latencies::add`].
    pub(crate) fn lines(&self) -> String {
        let line = |(kind, times): (&String, &Times)| {
            let buckets: Vec<String> = times.buckets.iter().map(u64::to_string).collect();
            format!("{kind} {} {}\n", times.most.as_micros(), buckets.join(" "))
        };
        self.0.iter().map(line).collect()
    }

    /// Adds the lines that another process printed.
    pub(crate) fn add(&mut self, lines: &str) -> Outcome {
        for line in lines.lines() {
            let mut words = line.split(' ');
            let kind = words.next().doing("a kind")?;
            let most: u64 = words.next().doing("the longest time")?.parse()?;
            let times = self.0.entry(kind.to_owned()).or_default();
            times.most = times.most.max(Duration::from_micros(most));
            for (bucket, word) in times.buckets.iter_mut().zip(words) {
                *bucket += word.parse::<u64>()?;
            }
        }
        Ok(())
    }

    /// How many there were.
    pub(crate) fn count(&self) -> u64 {
        self.0.values().flat_map(|times| times.buckets).sum()
    }

    /// The longest of all.
    pub(crate) fn most(&self) -> Duration {
        let most = self.0.values().map(|times| times.most).max();
        most.unwrap_or_default()
    }

    /// A table for people.
    pub(crate) fn table(&self) -> String {
        let mut text = format!(
            "{:<10} {:>9} {:>10} {:>10} {:>10}\n",
            "operation", "count", "p50 ms", "p99 ms", "max ms"
        );
        for (kind, times) in &self.0 {
            let count: u64 = times.buckets.iter().sum();
            let quantile = |percent: u64| {
                let mut seen = 0;
                let bucket = times.buckets.iter().position(|n| {
                    seen += n;
                    seen * 100 >= count * percent
                });
                (1u64 << bucket.unwrap_or_default()) as f64 / 1e3
            };
            text += &format!(
                "{kind:<10} {count:>9} {:>10.2} {:>10.2} {:>10.1}\n",
                quantile(50),
                quantile(99),
                times.most.as_secs_f64() * 1e3
            );
        }
        text
    }
}
