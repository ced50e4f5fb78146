//! The screen: made for 80 columns and 24 lines, with longer lists on larger terminals.

use std::path::Path;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::symbols;
use ratatui::widgets::{RenderDirection, Sparkline, Widget};
use shale_fs::stats::MountStats;

use super::rates::Rates;
use crate::output::report::{self, counted, printable};
use crate::output::size;
use crate::output::table::Keep;

/// What `--once` prints.
const USUAL: Rect = Rect::new(0, 0, 80, 24);
/// The least size. Smaller terminals get one line instead.
const LEAST: (u16, u16) = (60, 16);
/// Lines above the lists.
const HEAD: u16 = 12;
/// The column of the figures, and that of the history.
const INDENT: u16 = 9;
const HISTORY_AT: u16 = 36;

/// The contents of the screen.
pub(super) struct Dashboard<'a> {
    pub(super) mountpoint: &'a Path,
    pub(super) stats: &'a MountStats,
    pub(super) rates: &'a Rates,
    /// Bytes written and read per second, the newest first; none for a single sample, which has no
    /// keys either.
    pub(super) history: Option<&'a [(u64, u64)]>,
}

/// The screen as lines of text.
pub(super) fn text(dashboard: &Dashboard<'_>) -> String {
    let mut buffer = Buffer::empty(USUAL);
    draw(dashboard, USUAL, &mut buffer);
    let mut text = String::new();
    for y in 0..USUAL.height {
        let line: String = (0..USUAL.width)
            .filter_map(|x| buffer.cell((x, y)))
            .map(|cell| cell.symbol())
            .collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

/// Draws into a part of the screen.
pub(super) fn draw(dashboard: &Dashboard<'_>, area: Rect, buffer: &mut Buffer) {
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let (columns, lines) = LEAST;
        let text = format!("needs {columns}x{lines}; q quits");
        buffer.set_stringn(area.x, area.y, text, area.width.into(), Style::new());
        return;
    }
    head(dashboard, area, buffer);
    figures(dashboard, area, buffer);
    lists(dashboard, area, buffer);
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn head(dashboard: &Dashboard<'_>, area: Rect, buffer: &mut Buffer) {
    let mut right = format!("up {}", duration(dashboard.stats.uptime));
    if dashboard.history.is_some() {
        right.push_str("  q quits");
    }
    let room = usize::from(area.width) - right.len() - 10;
    let name = printable(&report::name(dashboard.mountpoint));
    let left = format!("ShaleFS {}", end_of(&name, room));
    let style = bold().add_modifier(Modifier::REVERSED);
    buffer.set_style(Rect { height: 1, ..area }, style);
    buffer.set_stringn(area.x, area.y, left, area.width.into(), style);
    let at = area.right() - right.len() as u16;
    buffer.set_string(at, area.y, right, style);
}

fn figures(dashboard: &Dashboard<'_>, area: Rect, buffer: &mut Buffer) {
    let (stats, rates) = (dashboard.stats, dashboard.rates);
    let rate = |bytes: f64| format!("{}/s", size::human(bytes as u64));
    let free = 100 * stats.device_free / stats.device_total.max(1);
    let ratio = rates
        .ratio
        .map_or_else(String::new, |ratio| format!("ratio {ratio:.2}"));
    let hits = rates
        .hits
        .map_or_else(|| "-".to_owned(), |hits| format!("{:.0} %", hits * 100.0));
    let latency = rates.latency.map_or_else(|| "-".to_owned(), duration);
    let settle = match &stats.settle.current {
        Some(path) => format!(
            "{:>12}  {}",
            rate(rates.settled),
            end_of(&printable(path), usize::from(area.width) - 25)
        ),
        None => format!(
            "idle; {}, {} became {}",
            counted(stats.settle.files, "file", "files"),
            size::human(stats.settle.before),
            size::human(stats.settle.after)
        ),
    };
    let lines = [
        ("in", format!("{:>12}  {ratio}", rate(rates.written))),
        ("out", format!("{:>12}", rate(rates.read))),
        (
            "packs",
            format!(
                "{:>12} appended, {} read",
                rate(rates.appended),
                rate(rates.pack_read)
            ),
        ),
        (
            "store",
            format!(
                "{} raw, {} stored, {}, {}, device {free} % free",
                size::human(stats.raw),
                size::human(stats.stored),
                size::human_ratio(stats.stored_raw, stats.stored),
                counted(stats.files, "file", "files")
            ),
        ),
        (
            "buffer",
            format!(
                "{} {} of {}, {:.0} waits/s",
                bar(stats.buffer_used, stats.buffer_limit),
                size::human(stats.buffer_used),
                size::human(stats.buffer_limit),
                rates.waits
            ),
        ),
        (
            "cache",
            format!(
                "{} {} of {}, hits {hits}",
                bar(stats.cache_used, stats.cache_limit),
                size::human(stats.cache_used),
                size::human(stats.cache_limit)
            ),
        ),
        (
            "queues",
            format!(
                "encode {}, decode {}, settle {}, dirty files {}",
                stats.encode_queue, stats.decode_queue, stats.settle.queue, stats.dirty_files
            ),
        ),
        ("settle", settle),
        (
            "gc",
            format!(
                "{}; garbage {}, given back {}",
                if stats.gc.running { "running" } else { "idle" },
                size::human(stats.gc.garbage),
                // Moved bytes still take space elsewhere.
                size::human(stats.gc.freed.saturating_sub(stats.gc.moved))
            ),
        ),
        (
            "ops",
            format!(
                "{:.0}/s, {latency} each, errors {:.0}/s, commits {:.0}/s, syncs {:.0}/s",
                rates.operations, rates.errors, rates.commits, rates.journal_syncs
            ),
        ),
    ];
    for (number, (name, figure)) in lines.into_iter().enumerate() {
        let y = area.y + 1 + number as u16;
        buffer.set_string(area.x + 1, y, name, bold());
        let room = usize::from(area.width - INDENT);
        buffer.set_stringn(area.x + INDENT, y, figure, room, Style::new());
    }
    let width = area.width - HISTORY_AT - 1;
    for (line, pick) in [(1, 0), (2, 1)] {
        let data: Vec<u64> = dashboard
            .history
            .unwrap_or_default()
            .iter()
            .map(|&(written, read)| if pick == 0 { written } else { read })
            .take(width.into())
            .collect();
        Sparkline::default()
            .data(data)
            .direction(RenderDirection::RightToLeft)
            .bar_set(symbols::bar::NINE_LEVELS)
            .render(
                Rect::new(area.x + HISTORY_AT, area.y + line, width, 1),
                buffer,
            );
    }
}

fn lists(dashboard: &Dashboard<'_>, area: Rect, buffer: &mut Buffer) {
    let room = area.height - HEAD;
    let slow_rows = (room / 2).saturating_sub(2);
    let busy_rows = room - slow_rows - 3;
    let path_room = usize::from(area.width) - 26;
    let slow = dashboard.stats.slowest.iter().map(|slow| {
        format!(
            "{:>10}  {:<11}  {}",
            duration(slow.seconds),
            slow.operation,
            end_of(&printable(&slow.path), path_room)
        )
    });
    let y = area.y + HEAD;
    let title = "      time  operation    SLOWEST OF THE LAST MINUTE";
    list(
        title,
        slow,
        Rect {
            y,
            height: slow_rows,
            ..area
        },
        buffer,
    );
    let busy = dashboard.rates.files.iter().map(|busy| {
        format!(
            "{:>10}  {:>10}   {}",
            size::human(busy.read as u64),
            size::human(busy.written as u64),
            end_of(&printable(&busy.path), path_room)
        )
    });
    let y = y + slow_rows + 2;
    let title = "    read/s   written/s   BUSIEST FILES";
    list(
        title,
        busy,
        Rect {
            y,
            height: busy_rows,
            ..area
        },
        buffer,
    );
}

/// A title and as many lines as fit below it.
fn list(title: &str, lines: impl Iterator<Item = String>, area: Rect, buffer: &mut Buffer) {
    let width = area.width.into();
    buffer.set_stringn(area.x, area.y, title, width, bold());
    for (row, line) in (1..=area.height).zip(lines) {
        buffer.set_stringn(area.x, area.y + row, line, width, Style::new());
    }
}

/// A bar of twenty cells.
fn bar(used: u64, limit: u64) -> String {
    const CELLS: u64 = 20;
    let full = (u128::from(used) * u128::from(CELLS) / u128::from(limit.max(1))) as u64;
    let full = full.min(CELLS).max(u64::from(used > 0)) as usize;
    format!(
        "[{}{}]",
        "█".repeat(full),
        " ".repeat(CELLS as usize - full)
    )
}

/// The end of a path, which says more than its beginning.
fn end_of(path: &str, room: usize) -> String {
    Keep::End.cut(path, room)
}

/// A time in one or two units.
fn duration(seconds: f64) -> String {
    let whole = seconds as u64;
    if seconds < 0.001 {
        format!("{:.0} µs", seconds * 1e6)
    } else if seconds < 1.0 {
        format!("{:.1} ms", seconds * 1e3)
    } else if seconds < 60.0 {
        format!("{seconds:.1} s")
    } else if whole < 3600 {
        format!("{} min {} s", whole / 60, whole % 60)
    } else if whole < 86_400 {
        format!("{} h {} min", whole / 3600, whole % 3600 / 60)
    } else {
        format!("{} d {} h", whole / 86_400, whole % 86_400 / 3600)
    }
}

#[cfg(test)]
mod tests {
    use shale_fs::stats::SlowOperation;

    use super::super::rates::FileRates;
    use super::*;

    fn busy() -> (MountStats, Rates) {
        let long = "a/rather/long/path/".repeat(10) + "history.nc";
        let mut stats = MountStats {
            uptime: 7503.0,
            raw: 123 << 40,
            stored: 99 << 39,
            stored_raw: 123 << 40,
            files: 123_456_789,
            device_total: 1000,
            device_free: 990,
            buffer_used: 1023 << 20,
            buffer_limit: 2 << 30,
            cache_used: 1,
            cache_limit: 1023 << 20,
            encode_queue: 1234,
            decode_queue: 1234,
            dirty_files: 12_345,
            ..MountStats::default()
        };
        stats.settle.current = Some(long.clone());
        stats.settle.queue = 999;
        stats.gc.garbage = 1023 << 20;
        stats.gc.freed = 2046 << 30;
        stats.gc.moved = 1023 << 30;
        for number in 0..16 {
            stats.slowest.push(SlowOperation {
                operation: "copy_file_range".to_owned(),
                seconds: 1.5 + f64::from(number),
                path: long.clone(),
                ..SlowOperation::default()
            });
        }
        let files = (0..16).map(|number| FileRates {
            path: format!("run/file{number}.nc"),
            read: 1.07e9,
            written: 1.07e9,
        });
        let rates = Rates {
            seconds: 1.0,
            written: 1.0e9,
            read: 1.02e12,
            appended: 1.02e9,
            pack_read: 1.02e9,
            operations: 123_456.0,
            errors: 1234.0,
            waits: 1234.0,
            commits: 1234.0,
            journal_syncs: 123.0,
            settled: 1.02e9,
            ratio: Some(12.34),
            hits: Some(1.0),
            latency: Some(0.000_999),
            files: files.collect(),
        };
        (stats, rates)
    }

    fn picture(width: u16, height: u16) -> Vec<String> {
        let (stats, rates) = busy();
        let dashboard = Dashboard {
            mountpoint: Path::new("/mnt/data"),
            stats: &stats,
            rates: &rates,
            history: Some(&[(5, 1), (3, 2)]),
        };
        let area = Rect::new(0, 0, width, height);
        let mut buffer = Buffer::empty(area);
        draw(&dashboard, area, &mut buffer);
        (0..height)
            .map(|y| {
                let cells = (0..width).filter_map(|x| buffer.cell((x, y)));
                let line: String = cells.map(|cell| cell.symbol()).collect();
                line.trim_end().to_owned()
            })
            .collect()
    }

    #[test]
    fn the_largest_figures_fit_into_80_by_24() {
        let lines = picture(80, 24);
        for line in &lines {
            assert!(line.chars().count() <= 80, "{line}");
        }
        let ends = [
            (0, "q quits"),
            (3, "973 MiB/s read"),
            (4, "% free"),
            (5, "waits/s"),
            (6, "hits 100 %"),
            (7, "dirty files 12345"),
            (8, "history.nc"),
            (9, "given back 1.00 TiB"),
            (10, "syncs 123/s"),
        ];
        for (number, end) in ends {
            assert!(lines[number].ends_with(end), "{:#?}", lines);
        }
        assert!(lines[12].contains("SLOWEST"), "{lines:#?}");
        assert!(
            lines[13].contains("1.5 s  copy_file_range  …"),
            "{lines:#?}"
        );
        assert!(lines[18].contains("BUSIEST"), "{lines:#?}");
        assert!(lines[23].contains("run/file4.nc"), "{lines:#?}");
    }

    #[test]
    fn more_room_shows_more_of_the_lists() {
        let lines = picture(120, 50);
        assert!(lines.iter().any(|line| line.contains("run/file15.nc")));
        let small = picture(60, 16);
        assert!(small[0].ends_with("q quits"), "{small:#?}");
        assert_eq!(picture(30, 5)[0], "needs 60x16; q quits");
    }

    #[test]
    fn one_sample_is_plain_text() {
        let (stats, rates) = busy();
        let dashboard = Dashboard {
            mountpoint: Path::new("/mnt/data"),
            stats: &stats,
            rates: &rates,
            history: None,
        };
        let text = text(&dashboard);
        assert!(!text.contains("quits"), "{text}");
        assert!(text.starts_with("ShaleFS /mnt/data"), "{text}");
        assert!(!text.contains('\u{1b}'));
        assert!(text.lines().count() <= 24);
    }

    #[test]
    fn times_have_fitting_units() {
        for (seconds, text) in [
            (0.0, "0 µs"),
            (0.000_25, "250 µs"),
            (0.012, "12.0 ms"),
            (1.26, "1.3 s"),
            (125.0, "2 min 5 s"),
            (7503.0, "2 h 5 min"),
            (200_000.0, "2 d 7 h"),
        ] {
            assert_eq!(duration(seconds), text);
        }
    }
}
