//! Output for people (aligned tables) and for machines (JSON).

use std::io::{self, Write};

use crate::failure::{Failure, exit, reason};

/// How a column is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
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

    /// Lines without trailing blanks, two blanks between columns.
    pub(crate) fn render(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.align.len()).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for ((cell, &width), align) in row.iter().zip(&widths).zip(&self.align) {
                if !line.is_empty() {
                    line.push_str("  ");
                }
                match align {
                    Align::Left => line.push_str(&format!("{cell:<width$}")),
                    Align::Right => line.push_str(&format!("{cell:>width$}")),
                }
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
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

/// Writes a value as JSON, indented, with a final newline.
pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    let mut text = serde_json::to_string_pretty(value).map_err(|e| {
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
