//! Sizes, rates and ratios for people. `shale_fs::options` parses sizes.

const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// `1536` becomes `1.50 KiB`: three significant digits, powers of 1024.
pub(crate) fn human(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64;
    let mut unit = 0;
    // 1023.5 KiB would round to 1024 KiB. Show 1.00 MiB instead.
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let decimals = if value < 9.995 {
        2
    } else if value < 99.95 {
        1
    } else {
        0
    };
    format!("{value:.decimals$} {}", UNITS[unit])
}

/// Raw by stored bytes; none if either is 0.
pub(crate) fn ratio(raw: u64, stored: u64) -> Option<f64> {
    (raw > 0 && stored > 0).then(|| raw as f64 / stored as f64)
}

/// A ratio as `1.43x`, or `-`.
pub(crate) fn human_ratio(raw: u64, stored: u64) -> String {
    ratio(raw, stored).map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}x"))
}

/// Throughput in decimal megabytes per second, as storage is sold and benchmarked.
pub(crate) fn rate(bytes: u64, time: std::time::Duration) -> String {
    format!(
        "{:.0} MB/s",
        bytes as f64 / 1e6 / time.as_secs_f64().max(1e-9)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_significant_digits() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (1536, "1.50 KiB"),
            (10 * 1024, "10.0 KiB"),
            (100 * 1024 + 512, "100 KiB"),
            (1024 * 1024 - 1, "1.00 MiB"),
            (12_897_484, "12.3 MiB"),
            (5 << 40, "5.00 TiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(human(bytes), text, "{bytes}");
        }
    }

    #[test]
    fn no_ratio_without_bytes() {
        assert_eq!(human_ratio(0, 0), "-");
        assert_eq!(human_ratio(10, 0), "-");
        assert_eq!(human_ratio(0, 10), "-");
        assert_eq!(human_ratio(3, 2), "1.50x");
    }

    #[test]
    fn rates_are_decimal() {
        assert_eq!(
            rate(500_000_000, std::time::Duration::from_secs(2)),
            "250 MB/s"
        );
    }
}
