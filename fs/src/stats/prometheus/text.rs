//! The metrics in the text format of Prometheus.

use std::fmt::Write as _;

use crate::stats::table::{Kind, Row};
use crate::stats::{Count, EncodeStats, GcStats, MountStats, OperationStats, SettleStats};

/// A sample: labels as they are written, and the value.
type Sample = (String, f64);

/// A metric that combines several fields of the statistics.
struct Labelled {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    samples: fn(&MountStats) -> Vec<Sample>,
}

/// Metrics besides the tables of [`crate::stats`] and the histogram of operations.
const LABELLED: &[Labelled] = &[
    Labelled {
        name: "shale_build_info",
        kind: Kind::Gauge,
        help: "Version of the daemon, as a label.",
        samples: |stats| vec![(format!("version=\"{}\"", escape(&stats.version)), 1.0)],
    },
    Labelled {
        name: "shale_mount_info",
        kind: Kind::Gauge,
        help: "The store, the mount point and the version of the daemon, as labels.",
        samples: |stats| {
            let labels = format!(
                "store=\"{}\",mountpoint=\"{}\",version=\"{}\"",
                escape(&stats.store),
                escape(&stats.mountpoint),
                escape(&stats.version)
            );
            vec![(labels, 1.0)]
        },
    },
    Labelled {
        name: "shale_start_time_seconds",
        kind: Kind::Gauge,
        help: "When the mount began, in seconds since the epoch.",
        samples: |stats| vec![(String::new(), stats.time - stats.uptime)],
    },
    Labelled {
        name: "shale_operation_errors_total",
        kind: Kind::Counter,
        help: "Operations that failed, by errno.",
        samples: |stats| errnos(&stats.errors),
    },
    Labelled {
        name: "shale_operation_refusals_total",
        kind: Kind::Counter,
        help: "Operations that were refused in normal use, such as a look-up of a missing name, by errno.",
        samples: |stats| errnos(&stats.refusals),
    },
    Labelled {
        name: "shale_settled_files_total",
        kind: Kind::Counter,
        help: "Files settled, by result: settled, compact (already as small), incompressible, or failed, which includes files that a write overtook.",
        samples: |stats| {
            [
                ("settled", stats.settle.files),
                ("compact", stats.settle.compact),
                ("incompressible", stats.settle.incompressible),
                ("failed", stats.settle.failed),
            ]
            .map(|(result, count)| (format!("result=\"{result}\""), count as f64))
            .into()
        },
    },
];

/// The histogram and its help text.
const OPERATIONS: (&str, &str) = (
    "shale_operation_duration_seconds",
    "How long operations of the file system took; buckets from 10 µs to 30 s.",
);

fn errnos(counts: &[Count]) -> Vec<Sample> {
    counts
        .iter()
        .map(|errno| (format!("errno=\"{}\"", errno.name), errno.count as f64))
        .collect()
}

fn escape(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// All metrics of a mount.
pub(super) fn render(stats: &MountStats) -> String {
    let mut text = String::new();
    for family in LABELLED {
        let samples = (family.samples)(stats);
        self::family(&mut text, family.name, family.kind, family.help, samples);
    }
    table(&mut text, MountStats::ROWS, &[("", stats)]);
    let passes = [
        ("pass=\"write\"", &stats.encoded),
        ("pass=\"settle\"", &stats.settled),
        ("pass=\"map\"", &stats.maps),
    ];
    table(&mut text, EncodeStats::ROWS, &passes);
    table(&mut text, SettleStats::ROWS, &[("", &stats.settle)]);
    table(&mut text, GcStats::ROWS, &[("", &stats.gc)]);
    histogram(&mut text, &stats.operations);
    text
}

/// The metrics of a table, with a sample for each pair of labels and statistics.
fn table<S>(text: &mut String, rows: &[Row<S>], stats: &[(&str, &S)]) {
    for row in rows {
        for metric in row.metric {
            let samples = stats
                .iter()
                .map(|&(labels, stats)| (labels.to_owned(), (metric.value)(stats)))
                .collect();
            family(text, metric.name, metric.kind, row.help, samples);
        }
    }
}

fn family(text: &mut String, name: &str, kind: Kind, help: &str, samples: Vec<Sample>) {
    let kind = kind.name();
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    for (labels, value) in samples {
        sample(text, name, &labels, value);
    }
}

fn histogram(text: &mut String, operations: &[OperationStats]) {
    let (name, help) = OPERATIONS;
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} histogram");
    for operation in operations {
        let label = format!("operation=\"{}\"", operation.name);
        let mut sum = 0;
        for (bound, count) in MountStats::bounds().zip(&operation.buckets) {
            sum += count;
            let labels = format!("{label},le=\"{bound}\"");
            sample(text, &format!("{name}_bucket"), &labels, sum as f64);
        }
        let labels = format!("{label},le=\"+Inf\"");
        let count = operation.count as f64;
        sample(text, &format!("{name}_bucket"), &labels, count);
        sample(text, &format!("{name}_sum"), &label, operation.seconds);
        sample(text, &format!("{name}_count"), &label, count);
    }
}

fn sample(text: &mut String, name: &str, labels: &str, value: f64) {
    // Large counts in full: the shortest form of a float would look rounded.
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

    fn filled() -> MountStats {
        MountStats {
            version: "1\"2\\3".to_owned(),
            store: "/a store".to_owned(),
            mountpoint: "/with \"quotes\"\nand lines".to_owned(),
            time: 1000.5,
            uptime: 100.5,
            written: 1 << 60,
            operations: vec![OperationStats {
                name: "read".to_owned(),
                count: 6,
                seconds: 0.25,
                buckets: vec![1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3],
            }],
            errors: vec![Count {
                name: "EIO".to_owned(),
                count: 2,
            }],
            ..MountStats::default()
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

    fn exported<S>(rows: &[Row<S>]) -> usize {
        rows.iter().map(|row| row.metric.len()).sum()
    }

    #[test]
    fn the_text_is_what_prometheus_reads() {
        let text = render(&filled());
        let families = parse(&text);
        let tables = exported(MountStats::ROWS)
            + exported(EncodeStats::ROWS)
            + exported(SettleStats::ROWS)
            + exported(GcStats::ROWS);
        assert_eq!(families.len(), LABELLED.len() + tables + 1);
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
    fn the_manual_describes_every_metric_as_the_daemon_does() {
        let text = render(&filled());
        let kinds = parse(&text);
        let manual = document("admin.md");
        for line in text.lines() {
            let Some((name, help)) = line
                .strip_prefix("# HELP ")
                .and_then(|rest| rest.split_once(' '))
            else {
                continue;
            };
            let row = format!("| `{name}` | {} | ", kinds[name]);
            let row = manual.lines().find(|line| line.starts_with(&row));
            let row = row.unwrap_or_else(|| panic!("{name} has no row"));
            let help = help.trim_end_matches('.');
            assert!(row.ends_with(&format!(" | {help} |")), "{row}\n{help}");
        }
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
