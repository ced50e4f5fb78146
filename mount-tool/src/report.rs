//! Output for people (aligned tables) and for machines (JSON).

use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;

use ratatui::text::Span;
use serde::Serialize;

use crate::failure::{Failure, exit, reason};

/// How a column is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Blanks between two columns.
const GAP: usize = 2;
/// Columns are not cut to less than this.
const NARROWEST: usize = 12;

/// What is left of a text that is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    Start,
    End,
}

impl Keep {
    /// The text in so many columns, with an ellipsis for the rest.
    pub(crate) fn cut(self, text: &str, room: usize) -> String {
        if columns(text) <= room {
            return text.to_owned();
        }
        let mut left = room.saturating_sub(1);
        let mut fits = |letter: &char| {
            let width = columns(letter.encode_utf8(&mut [0; 4]));
            let fits = width <= left;
            left = left.saturating_sub(width);
            fits
        };
        match self {
            Self::Start => {
                let kept: String = text.chars().take_while(&mut fits).collect();
                kept + "…"
            }
            Self::End => {
                let kept: Vec<char> = text.chars().rev().take_while(&mut fits).collect();
                std::iter::once('…').chain(kept.into_iter().rev()).collect()
            }
        }
    }
}

/// Columns of the terminal that a report goes to; none where it goes elsewhere.
pub(crate) fn terminal_width() -> Option<usize> {
    if !io::stdout().is_terminal() {
        return None;
    }
    let (columns, _) = ratatui::crossterm::terminal::size().ok()?;
    (columns > 0).then(|| columns.into())
}

/// A table with aligned columns.
#[derive(Debug)]
pub(crate) struct Table {
    align: Vec<Align>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(columns: &[(&str, Align)]) -> Self {
        Self {
            align: columns.iter().map(|&(_, align)| align).collect(),
            rows: vec![columns.iter().map(|&(name, _)| name.to_owned()).collect()],
        }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Columns of a terminal that it takes.
    pub(crate) fn width(&self) -> usize {
        self.widths().iter().map(|width| width + GAP).sum::<usize>() - GAP
    }

    fn widths(&self) -> Vec<usize> {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| columns(cell)).max().unwrap_or(0)
        };
        (0..self.align.len()).map(width).collect()
    }

    /// Makes it as narrow as a terminal, if it is to go to one, by cutting off what is too long
    /// in some columns. None becomes so narrow that nothing can be recognised.
    pub(crate) fn fit(mut self, terminal: Option<usize>, cuts: &[(usize, Keep)]) -> Self {
        for &(column, keep) in cuts {
            let excess = terminal.map_or(0, |terminal| self.width().saturating_sub(terminal));
            let widest = self.widths().get(column).copied().unwrap_or(0);
            let room = widest.saturating_sub(excess).max(NARROWEST);
            if excess > 0 && room < widest {
                let cells = self.rows.iter_mut().filter_map(|row| row.get_mut(column));
                cells.for_each(|cell| *cell = keep.cut(cell, room));
            }
        }
        self
    }

    /// Lines without trailing blanks, two blanks between columns.
    pub(crate) fn render(&self) -> String {
        let widths = self.widths();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for ((cell, &width), align) in row.iter().zip(&widths).zip(&self.align) {
                if !line.is_empty() {
                    line.push_str(&" ".repeat(GAP));
                }
                let blanks = " ".repeat(width.saturating_sub(columns(cell)));
                match align {
                    Align::Left => line.extend([cell, &*blanks]),
                    Align::Right => line.extend([&*blanks, cell]),
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Columns of a terminal that a text takes: letters of some scripts take two.
fn columns(text: &str) -> usize {
    Span::raw(text).width()
}

/// A name or path as text; bytes that are no UTF-8 are written as `\xff`.
pub(crate) fn name(name: impl AsRef<OsStr>) -> String {
    let mut text = String::new();
    for chunk in name.as_ref().as_bytes().utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// A name that cannot break a table or a terminal.
pub(crate) fn printable(name: &str) -> String {
    let escape = |c: char| {
        if c.is_control() {
            c.escape_default().collect()
        } else {
            String::from(c)
        }
    };
    name.chars().map(escape).collect()
}

/// `1 file`, `2 files`.
pub(crate) fn counted(count: u64, one: &str, many: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {many}"),
    }
}

/// Writes to stdout. A reader that has seen enough (`| head`) is not an error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(Failure::new(
            exit::IO,
            format_args!("cannot write the report: {}", reason(&e)),
        )),
        _ => Ok(()),
    }
}

/// The version of what is printed as JSON. It grows when a field goes or means something else;
/// docs/json.md has them all.
pub(crate) const SCHEMA: u32 = 1;

/// A report or an error as every command prints it.
#[derive(Debug, Serialize)]
pub(crate) struct Document<'a, T> {
    pub(crate) schema: u32,
    pub(crate) command: &'a str,
    #[serde(flatten)]
    pub(crate) report: &'a T,
}

/// Something that a command names in its report because it was not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Problem {
    /// The file or directory, if it is one.
    pub(crate) path: Option<String>,
    /// Where in the file.
    pub(crate) offset: Option<u64>,
    pub(crate) message: String,
    /// The exit status that it leads to.
    pub(crate) status: u8,
}

/// Writes the report of a command as JSON, indented, with a final newline.
pub(crate) fn print_json(command: &str, report: &impl Serialize) -> Result<(), Failure> {
    let document = Document {
        schema: SCHEMA,
        command,
        report,
    };
    let mut text = serde_json::to_string_pretty(&document).map_err(|e| {
        Failure::new(
            exit::SOFTWARE,
            format_args!("cannot put the report into JSON: {e}"),
        )
    })?;
    text.push('\n');
    print(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&[("path", Align::Left), ("raw", Align::Right)]);
        table.row(["a".to_owned(), "1.00 KiB".to_owned()]);
        table.row(["été.nc".to_owned(), "2 B".to_owned()]);
        assert_eq!(
            table.render(),
            "path         raw\na       1.00 KiB\nété.nc       2 B\n"
        );
    }

    #[test]
    fn wide_letters_take_two_columns() {
        let mut table = Table::new(&[("path", Align::Left), ("raw", Align::Right)]);
        table.row(["日本.nc".to_owned(), "2 B".to_owned()]);
        table.row(["plain.nc".to_owned(), "3 B".to_owned()]);
        assert_eq!(
            table.render(),
            "path      raw\n日本.nc   2 B\nplain.nc  3 B\n"
        );
    }

    #[test]
    fn a_table_is_cut_to_the_width_of_a_terminal() {
        let table = || {
            let mut table = Table::new(&[
                ("path", Align::Left),
                ("raw", Align::Right),
                ("transform", Align::Left),
            ]);
            let path = "/lustre/project/model/run/history.nc".to_owned();
            let transform = "residuals of something".to_owned();
            table.row([path, "2 B".to_owned(), transform]);
            table
        };
        let cuts = [(0, Keep::End), (2, Keep::Start)];
        let whole = table().render();
        assert_eq!(table().fit(None, &cuts).render(), whole);
        assert_eq!(table().fit(Some(100), &cuts).render(), whole);
        assert_eq!(
            table().fit(Some(50), &cuts).render().lines().nth(1),
            Some("…model/run/history.nc  2 B  residuals of something")
        );
        assert_eq!(
            table().fit(Some(20), &cuts).render().lines().nth(1),
            Some("…/history.nc  2 B  residuals o…")
        );
    }

    #[test]
    fn wide_letters_are_not_cut_in_two() {
        assert_eq!(Keep::End.cut("日本語", 4), "…語");
        assert_eq!(Keep::Start.cut("日本語", 5), "日本…");
        assert_eq!(Keep::Start.cut("日本語", 6), "日本語");
    }

    #[test]
    fn names_that_are_no_text_stay_different() {
        assert_eq!(name("été"), "été");
        assert_eq!(
            name(OsStr::from_bytes(b"a\xffb\xfe\xfd")),
            "a\\xffb\\xfe\\xfd"
        );
    }

    #[test]
    fn no_trailing_blanks() {
        let mut table = Table::new(&[("a", Align::Left), ("state", Align::Left)]);
        table.row(["x".to_owned(), String::new()]);
        assert_eq!(table.render(), "a  state\nx\n");
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(printable("a\nb\x1b[0mé"), "a\\nb\\u{1b}[0mé");
    }
}
