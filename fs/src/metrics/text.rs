//! The text format of Prometheus.

use std::fmt::Write as _;

use crate::live::{Count, Encoded, Live};

/// What a family of samples is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
}

/// A sample: labels as they are written, and the value.
type Sample = (String, f64);

/// Name, kind, what it is, and how it is found.
type Family = (&'static str, Kind, &'static str, fn(&Live) -> Vec<Sample>);

/// Everything that is exported, besides the histogram of operations.
const FAMILIES: &[Family] = {
    use Kind::{Counter, Gauge};
    &[
        (
            "shale_build_info",
            Gauge,
            "Version of the daemon, in a label.",
            |l| vec![(format!("version=\"{}\"", escape(&l.version)), 1.0)],
        ),
        (
            "shale_mount_info",
            Gauge,
            "Which store is mounted where, by which version, in labels.",
            |l| {
                let labels = format!(
                    "store=\"{}\",mountpoint=\"{}\",version=\"{}\"",
                    escape(&l.store),
                    escape(&l.mountpoint),
                    escape(&l.version)
                );
                vec![(labels, 1.0)]
            },
        ),
        (
            "shale_start_time_seconds",
            Gauge,
            "When the mount began, in seconds since the epoch.",
            |l| one(l.time - l.uptime),
        ),
        (
            "shale_operation_errors_total",
            Counter,
            "Operations that failed, by errno.",
            |l| errnos(&l.errors),
        ),
        (
            "shale_operation_refusals_total",
            Counter,
            "Operations that were refused in the course of things, as of names that are not there, by errno.",
            |l| errnos(&l.refusals),
        ),
        (
            "shale_written_bytes_total",
            Counter,
            "Bytes that programs wrote.",
            |l| n(l.written),
        ),
        (
            "shale_read_bytes_total",
            Counter,
            "Bytes that programs read.",
            |l| n(l.read),
        ),
        (
            "shale_encoded_frames_total",
            Counter,
            "Frames made, by pass: write, settle, or map (of the extents of a file).",
            |l| passes(l, |pass| pass.frames as f64),
        ),
        (
            "shale_encoded_raw_bytes_total",
            Counter,
            "Bytes before encoding, by pass.",
            |l| passes(l, |pass| pass.raw as f64),
        ),
        (
            "shale_encoded_stored_bytes_total",
            Counter,
            "Bytes after encoding, by pass.",
            |l| passes(l, |pass| pass.stored as f64),
        ),
        (
            "shale_encode_seconds_total",
            Counter,
            "Time spent encoding, all threads together, by pass.",
            |l| passes(l, |pass| pass.seconds),
        ),
        (
            "shale_pack_appends_total",
            Counter,
            "Appends to packs.",
            |l| n(l.appends),
        ),
        (
            "shale_pack_appended_bytes_total",
            Counter,
            "Bytes appended to packs.",
            |l| n(l.appended),
        ),
        (
            "shale_pack_syncs_total",
            Counter,
            "Rounds of syncing packs.",
            |l| n(l.pack_syncs),
        ),
        (
            "shale_pack_reads_total",
            Counter,
            "Reads from packs.",
            |l| n(l.pack_reads),
        ),
        (
            "shale_pack_read_bytes_total",
            Counter,
            "Bytes read from packs.",
            |l| n(l.pack_read),
        ),
        (
            "shale_cache_hits_total",
            Counter,
            "Decoded frames that were found in memory.",
            |l| n(l.cache_hits),
        ),
        (
            "shale_cache_misses_total",
            Counter,
            "Decoded frames that were not.",
            |l| n(l.cache_misses),
        ),
        (
            "shale_cache_bytes",
            Gauge,
            "Decoded frames in memory.",
            |l| n(l.cache_used),
        ),
        (
            "shale_cache_limit_bytes",
            Gauge,
            "How much that may be.",
            |l| n(l.cache_limit),
        ),
        (
            "shale_buffer_bytes",
            Gauge,
            "Written data in memory that is not committed.",
            |l| n(l.buffer_used),
        ),
        (
            "shale_buffer_limit_bytes",
            Gauge,
            "How much that may be before writers wait.",
            |l| n(l.buffer_limit),
        ),
        (
            "shale_buffer_waits_total",
            Counter,
            "Writes that had to wait for memory.",
            |l| n(l.waits),
        ),
        (
            "shale_buffer_wait_seconds_total",
            Counter,
            "Time that they waited.",
            |l| one(l.wait_seconds),
        ),
        (
            "shale_encode_queue_chunks",
            Gauge,
            "Chunks that wait to be encoded.",
            |l| n(l.encode_queue),
        ),
        (
            "shale_decode_queue_frames",
            Gauge,
            "Frames that wait to be decoded ahead of readers.",
            |l| n(l.decode_queue),
        ),
        (
            "shale_dirty_files",
            Gauge,
            "Files with something to be written.",
            |l| n(l.dirty_files),
        ),
        (
            "shale_files_in_use",
            Gauge,
            "Files that are open or being worked on.",
            |l| n(l.files_in_use),
        ),
        (
            "shale_damaged_files",
            Gauge,
            "Files in which something could not be read since the mount began.",
            |l| n(l.damaged_files),
        ),
        (
            "shale_index_commits_total",
            Counter,
            "Transactions of the index.",
            |l| n(l.commits),
        ),
        (
            "shale_journal_syncs_total",
            Counter,
            "Syncs of the index's journal; one serves all who wait.",
            |l| n(l.journal_syncs),
        ),
        (
            "shale_settled_files_total",
            Counter,
            "Files settled, by result: settled, compact (as small already), incompressible, or failed, which counts those overtaken by a write too.",
            |l| {
                [
                    ("settled", l.settle.files),
                    ("compact", l.settle.compact),
                    ("incompressible", l.settle.incompressible),
                    ("failed", l.settle.failed),
                ]
                .map(|(result, count)| (format!("result=\"{result}\""), count as f64))
                .into()
            },
        ),
        (
            "shale_settled_raw_bytes_total",
            Counter,
            "Bytes of files that were settled.",
            |l| n(l.settle.raw),
        ),
        (
            "shale_settled_before_bytes_total",
            Counter,
            "Stored bytes of them before.",
            |l| n(l.settle.before),
        ),
        (
            "shale_settled_after_bytes_total",
            Counter,
            "Stored bytes of them after.",
            |l| n(l.settle.after),
        ),
        (
            "shale_settle_queue_files",
            Gauge,
            "Files that were asked to be settled and wait.",
            |l| n(l.settle.queue),
        ),
        (
            "shale_settle_running",
            Gauge,
            "1 while a file is being settled.",
            |l| n(l.settle.running.into()),
        ),
        (
            "shale_gc_running",
            Gauge,
            "1 while packs are being rewritten.",
            |l| n(l.gc.running.into()),
        ),
        (
            "shale_gc_garbage_bytes",
            Gauge,
            "Stored bytes that nothing needs any more, without packs that still grow.",
            |l| n(l.gc.garbage),
        ),
        (
            "shale_gc_rewritten_packs_total",
            Counter,
            "Packs rewritten because little of them was alive.",
            |l| n(l.gc.rewritten),
        ),
        (
            "shale_gc_moved_bytes_total",
            Counter,
            "Live bytes that were moved for that.",
            |l| n(l.gc.moved),
        ),
        (
            "shale_gc_deleted_packs_total",
            Counter,
            "Packs deleted.",
            |l| n(l.gc.deleted),
        ),
        (
            "shale_gc_freed_bytes_total",
            Counter,
            "Bytes of these packs; what was moved out of them is to be subtracted for what the device got back.",
            |l| n(l.gc.freed),
        ),
        (
            "shale_gc_failed_total",
            Counter,
            "Passes over the packs that broke off.",
            |l| n(l.gc.failed),
        ),
        (
            "shale_store_raw_bytes",
            Gauge,
            "Bytes of all files as programs see them.",
            |l| n(l.raw),
        ),
        (
            "shale_store_stored_bytes",
            Gauge,
            "Bytes that they take in the store.",
            |l| n(l.stored),
        ),
        (
            "shale_store_stored_raw_bytes",
            Gauge,
            "Bytes of files that these stand for; the rest is not stored yet.",
            |l| n(l.stored_raw),
        ),
        ("shale_store_files", Gauge, "Files in the store.", |l| {
            n(l.files)
        }),
        (
            "shale_store_directories",
            Gauge,
            "Directories in the store.",
            |l| n(l.dirs),
        ),
        (
            "shale_device_size_bytes",
            Gauge,
            "Size of the device that holds the store.",
            |l| n(l.device_total),
        ),
        (
            "shale_device_free_bytes",
            Gauge,
            "Free bytes of it that the daemon may use.",
            |l| n(l.device_free),
        ),
    ]
};

/// The histogram, and what it is.
const OPERATIONS: (&str, &str) = (
    "shale_operation_duration_seconds",
    "How long operations of the file system took, by kind.",
);

fn errnos(counts: &[Count]) -> Vec<Sample> {
    counts
        .iter()
        .map(|errno| (format!("errno=\"{}\"", errno.name), errno.count as f64))
        .collect()
}

fn one(value: f64) -> Vec<Sample> {
    vec![(String::new(), value)]
}

fn n(value: u64) -> Vec<Sample> {
    one(value as f64)
}

fn passes(live: &Live, value: fn(&Encoded) -> f64) -> Vec<Sample> {
    [
        ("write", &live.encoded),
        ("settle", &live.settled),
        ("map", &live.maps),
    ]
    .map(|(pass, encoded)| (format!("pass=\"{pass}\""), value(encoded)))
    .into()
}

fn escape(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// All metrics of a mount.
pub(super) fn render(live: &Live) -> String {
    let mut text = String::new();
    for (name, kind, help, samples) in FAMILIES {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in samples(live) {
            sample(&mut text, name, &labels, value);
        }
    }
    let (name, help) = OPERATIONS;
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} histogram");
    for operation in &live.operations {
        let label = format!("operation=\"{}\"", operation.name);
        let mut sum = 0;
        for (bound, count) in Live::bounds().zip(&operation.buckets) {
            sum += count;
            let labels = format!("{label},le=\"{bound}\"");
            sample(&mut text, &format!("{name}_bucket"), &labels, sum as f64);
        }
        let labels = format!("{label},le=\"+Inf\"");
        let count = operation.count as f64;
        sample(&mut text, &format!("{name}_bucket"), &labels, count);
        sample(&mut text, &format!("{name}_sum"), &label, operation.seconds);
        sample(&mut text, &format!("{name}_count"), &label, count);
    }
    text
}

fn sample(text: &mut String, name: &str, labels: &str, value: f64) {
    // Large counts as they are: the shortest form of a float would round them for the eye.
    let value = if value.fract() == 0.0 && value.abs() < 9e18 {
        (value as i64).to_string()
    } else {
        value.to_string()
    };
    let _ = if labels.is_empty() {
        writeln!(text, "{name} {value}")
    } else {
        writeln!(text, "{name}{{{labels}}} {value}")
    };
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::Path;

    use super::*;
    use crate::live::Operation;

    fn filled() -> Live {
        Live {
            version: "1\"2\\3".to_owned(),
            store: "/a store".to_owned(),
            mountpoint: "/with \"quotes\"\nand lines".to_owned(),
            time: 1000.5,
            uptime: 100.5,
            written: 1 << 60,
            operations: vec![Operation {
                name: "read".to_owned(),
                count: 6,
                seconds: 0.25,
                buckets: vec![1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3],
            }],
            errors: vec![Count {
                name: "EIO".to_owned(),
                count: 2,
            }],
            ..Live::default()
        }
    }

    /// A strict reader of the format: families in order, each with HELP and TYPE before its
    /// samples, no sample twice. Returns the families.
    fn parse(text: &str) -> BTreeMap<String, String> {
        let mut families = BTreeMap::new();
        let mut seen = BTreeSet::new();
        let mut family = String::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').unwrap();
                assert!(help.ends_with('.'), "{line}");
                family = name.to_owned();
                continue;
            }
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert_eq!(name, family);
                assert!(families.insert(name.to_owned(), kind.to_owned()).is_none());
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
                continue;
            }
            let (sample, value) = line.rsplit_once(' ').unwrap();
            value.parse::<f64>().unwrap();
            assert!(seen.insert(sample.to_owned()), "{sample} twice");
            let name = sample.split('{').next().unwrap();
            let base = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|end| name.strip_suffix(end))
                .filter(|base| families.get(*base).is_some_and(|kind| kind == "histogram"));
            assert_eq!(base.unwrap_or(name), family, "{line}");
            assert!(name.starts_with("shale_"));
            assert!(name.bytes().all(|b| b == b'_' || b.is_ascii_lowercase()));
        }
        families
    }

    #[test]
    fn the_text_is_what_prometheus_reads() {
        let text = render(&filled());
        let families = parse(&text);
        assert_eq!(families.len(), FAMILIES.len() + 1);
        assert!(text.contains("shale_build_info{version=\"1\\\"2\\\\3\"} 1\n"));
        let labels =
            r#"store="/a store",mountpoint="/with \"quotes\"\nand lines",version="1\"2\\3""#;
        assert!(text.contains(&format!("shale_mount_info{{{labels}}} 1\n")));
        assert!(text.contains("shale_start_time_seconds 900\n"));
        assert!(text.contains("shale_written_bytes_total 1152921504606846976\n"));
        assert!(text.contains("shale_operation_errors_total{errno=\"EIO\"} 2\n"));
        let bucket = "shale_operation_duration_seconds_bucket{operation=\"read\",le=";
        assert!(
            text.contains(&format!("{bucket}\"0.00001\"}} 1\n")),
            "{text}"
        );
        assert!(text.contains(&format!("{bucket}\"30\"}} 3\n")));
        assert!(text.contains(&format!("{bucket}\"+Inf\"}} 6\n")));
        assert!(text.contains("_sum{operation=\"read\"} 0.25\n"));
        assert!(text.contains("_count{operation=\"read\"} 6\n"));
    }

    fn document(name: &str) -> String {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
        std::fs::read_to_string(docs.join(name)).unwrap()
    }

    /// Names of metrics in a text, without the endings of histograms.
    fn named(text: &str) -> BTreeSet<String> {
        let word = |letter: char| letter == '_' || letter.is_ascii_lowercase();
        text.split(|letter| !word(letter))
            .filter(|name| name.starts_with("shale_") && !name.ends_with('_'))
            .map(|name| {
                ["_bucket", "_sum", "_count"]
                    .iter()
                    .find_map(|end| name.strip_suffix(end))
                    .unwrap_or(name)
                    .to_owned()
            })
            .collect()
    }

    #[test]
    fn the_manual_lists_every_metric_and_no_other() {
        let exported: BTreeSet<String> = parse(&render(&filled())).into_keys().collect();
        let manual = document("admin.md");
        let section = manual
            .split("\n## ")
            .find(|part| part.starts_with("Metrics\n"));
        assert_eq!(named(section.unwrap()), exported);
    }

    #[test]
    fn the_dashboard_shows_metrics_that_exist() {
        let exported: BTreeSet<String> = parse(&render(&filled())).into_keys().collect();
        let dashboard: serde_json::Value =
            serde_json::from_str(&document("grafana-dashboard.json")).unwrap();
        let mut expressions = 0;
        for panel in dashboard["panels"].as_array().unwrap() {
            for target in panel["targets"].as_array().into_iter().flatten() {
                let expression = target["expr"].as_str().unwrap();
                let names = named(expression);
                assert!(!names.is_empty(), "{expression}");
                assert!(names.is_subset(&exported), "{expression}");
                expressions += 1;
            }
        }
        assert!(expressions >= 12, "{expressions}");
    }

    /// Values that a text asks a label for, as `label="A|B"`.
    fn asked<'a>(text: &'a str, label: &str) -> Vec<&'a str> {
        let mut found = Vec::new();
        for (at, _) in text.match_indices(label) {
            let rest = text[at + label.len()..].trim_start_matches(['=', '~']);
            if let Some(value) = rest.strip_prefix('"').and_then(|r| r.split('"').next()) {
                found.extend(value.split('|'));
            }
        }
        found
    }

    #[test]
    fn alerts_are_about_metrics_that_exist() {
        let exported: BTreeSet<String> = parse(&render(&filled())).into_keys().collect();
        let rules = document("prometheus-alerts.yml");
        let rules: Vec<&str> = rules.split("- alert: ").skip(1).collect();
        assert!(rules.len() >= 8, "{}", rules.len());
        for rule in rules {
            let fields: BTreeMap<&str, &str> = rule
                .lines()
                .skip(1)
                .filter_map(|line| line.trim().split_once(": "))
                .collect();
            let expression = fields["expr"];
            let names = named(expression);
            assert!(names.is_subset(&exported), "{expression}");
            assert!(names.contains("shale_mount_info"), "{expression}");
            assert!(names.len() > 1 || expression.contains("unless"), "{rule}");
            for errno in asked(expression, "errno") {
                let known = crate::counters::ERRORS
                    .iter()
                    .any(|(_, name)| *name == errno);
                assert!(known, "{errno} in {expression}");
            }
            assert!(
                ["warning", "critical"].contains(&fields["severity"]),
                "{rule}"
            );
            for text in ["summary", "description"] {
                let text = fields[text];
                assert!(text.starts_with('"') && text.ends_with('"'), "{text}");
            }
        }
    }
}
