//! Tables with aligned columns, cut to the width of a terminal.

use std::io::{self, IsTerminal};

use ratatui::text::Span;

/// How a column is aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Blanks between two columns.
const GAP: usize = 2;
/// The least width that a column is cut to.
const NARROWEST: usize = 12;

/// Which end of a long text is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    Start,
    End,
}

impl Keep {
    /// The text cut to `room` columns, with an ellipsis for the rest.
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

/// The width of the terminal on stdout; none if stdout is not a terminal.
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

    /// Its width in columns.
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

    /// Cuts some columns so that the table fits a terminal, if it goes to one. No column is cut to
    /// less than [`NARROWEST`].
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

/// The width of a text in columns. Letters of some scripts take two.
fn columns(text: &str) -> usize {
    Span::raw(text).width()
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
    fn no_trailing_blanks() {
        let mut table = Table::new(&[("a", Align::Left), ("state", Align::Left)]);
        table.row(["x".to_owned(), String::new()]);
        assert_eq!(table.render(), "a  state\nx\n");
    }
}
