//! The table of `shale stat`.

use super::bars::Bars;
use super::figures::{Entry, Figures, Report};
use crate::output::report::printable;
use crate::output::size;
use crate::output::table::{Align, Keep, Table};

/// Printed below a table with unwritten data.
const WRITING: &str = "\nUnwritten data will be stored within seconds; ratios are of what is \
                       stored.\n";

/// The table, no wider than a terminal. Bars are left out if names need their room.
pub(super) fn render(report: &Report, bars: Bars, terminal: Option<usize>) -> String {
    let unwritten = report.entries.iter().any(Entry::is_unwritten);
    let mut columns = vec![("path", Align::Left), ("raw", Align::Right)];
    if unwritten {
        columns.push(("unwritten", Align::Right));
    }
    columns.extend([("stored", Align::Right), ("ratio", Align::Right)]);
    if bars != Bars::None {
        columns.push(("share", Align::Left));
    }
    columns.extend([("files", Align::Right), ("state", Align::Left)]);
    let mut table = Table::new(&columns);
    let mut line = |name: String, figures: Option<&Figures>, of: u64, state: &str| {
        let cell = |text: fn(&Figures) -> String| figures.map_or_else(|| "-".to_owned(), text);
        let mut cells = vec![name, cell(|figures| size::human(figures.raw))];
        if unwritten {
            cells.push(cell(|figures| size::human(figures.unwritten)));
        }
        cells.push(cell(|figures| size::human(figures.stored)));
        cells.push(cell(|figures| {
            size::human_ratio(figures.stored_raw, figures.stored)
        }));
        if bars != Bars::None {
            cells.push(bars.draw(figures.map(|figures| figures.stored), of));
        }
        cells.push(cell(|figures| figures.files.to_string()));
        cells.push(printable(state));
        table.row(cells);
    };
    let several = report.entries.len() > 1;
    for entry in &report.entries {
        let all = entry.figures.map_or(0, |figures| figures.stored);
        for child in entry.children.iter().flatten() {
            line(child.shown(), child.figures.as_ref(), all, child.note());
        }
        let of = if several { report.total.stored } else { all };
        line(entry.shown(), entry.figures.as_ref(), of, entry.note());
    }
    if several {
        let total = &report.total;
        line("total".to_owned(), Some(total), total.stored, "");
    }
    let cuts = [(0, Keep::End)];
    let table = table.fit(terminal, &cuts);
    if bars != Bars::None && terminal.is_some_and(|terminal| table.width() > terminal) {
        return render(report, Bars::None, terminal);
    }
    let mut text = table.render();
    if unwritten {
        text.push_str(WRITING);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(path: &str, kind: &'static str, raw: u64, stored: u64, files: u64) -> Entry {
        let figures = Figures {
            raw,
            stored,
            stored_raw: raw,
            unwritten: 0,
            ratio: size::ratio(raw, stored),
            files,
            dirs: 0,
        };
        let figures = (kind != "symlink").then_some(figures);
        let state = (kind == "file").then(|| "settled".to_owned());
        Entry {
            path: path.to_owned(),
            kind,
            figures,
            state,
            codecs: None,
            children: None,
        }
    }

    fn report() -> Report {
        let mut directory = sample("/mnt/run", "directory", 3 << 20, 2 << 20, 2);
        directory.children = Some(vec![
            sample("a\n.nc", "file", 3 << 20, 2 << 20, 1),
            sample("empty", "file", 0, 0, 1),
            sample("link", "symlink", 0, 0, 0),
        ]);
        let file = sample("/mnt/b.nc", "file", 1 << 20, 1 << 19, 1);
        let total = Figures::sum([directory.figures, file.figures].into_iter().flatten());
        Report {
            entries: vec![directory, file],
            total,
        }
    }

    #[test]
    fn a_directory_lists_its_children_then_itself_then_the_total() {
        let expected = "\
path            raw    stored  ratio  files  state
a\\n.nc     3.00 MiB  2.00 MiB  1.50x      1  settled
empty           0 B       0 B      -      1  settled
link              -         -      -      -  symlink
/mnt/run/  3.00 MiB  2.00 MiB  1.50x      2
/mnt/b.nc  1.00 MiB   512 KiB  2.00x      1  settled
total      4.00 MiB  2.50 MiB  1.60x      3
";
        assert_eq!(render(&report(), Bars::None, None), expected);
    }

    #[test]
    fn figures_that_are_about_to_change_are_explained() {
        let mut report = report();
        assert!(!render(&report, Bars::None, None).contains("unwritten"));
        let child = &mut report.entries[0].children.as_mut().unwrap()[0];
        let figures = child.figures.as_mut().unwrap();
        (figures.stored_raw, figures.unwritten) = (2 << 20, 1 << 20);
        let text = render(&report, Bars::None, None);
        let line = "a\\n.nc     3.00 MiB   1.00 MiB  2.00 MiB  1.00x      1  settled\n";
        assert!(text.contains(line), "{text}");
        assert!(text.ends_with(WRITING));
    }

    #[test]
    fn bars_show_the_share_of_the_directory_and_of_all() {
        let text = render(&report(), Bars::Blocks, None);
        let shares: Vec<&str> = text
            .lines()
            .map(|line| line.split("x  ").nth(1).unwrap_or("").trim_end())
            .collect();
        assert!(shares[1].starts_with("██████████  "), "{text}");
        assert!(shares[4].starts_with("████████  "), "{text}");
        assert!(shares[5].starts_with("██  "), "{text}");
        assert!(render(&report(), Bars::Plain, None).contains("##########"));
    }

    #[test]
    fn json_has_plain_bytes() {
        let json = serde_json::to_value(report()).unwrap();
        assert_eq!(json["entries"][0]["raw"], 3 << 20);
        assert_eq!(json["entries"][0]["ratio"], 1.5);
        assert_eq!(
            json["entries"][0]["children"][1]["ratio"],
            serde_json::Value::Null
        );
        assert_eq!(json["total"]["files"], 3);
        assert!(json["entries"][1].get("children").is_none());
    }
}
