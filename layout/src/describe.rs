//! Describes a layout as text.

use std::fmt::Write as _;

use crate::extent::Content;
use crate::layout::Layout;
use crate::variable::Variable;
use crate::variable::dimensions;

/// A table of the variables, and how much of the file is understood.
#[must_use]
pub fn describe(layout: &Layout) -> String {
    let mut text = String::new();
    let Some(format) = layout.format() else {
        let _ = writeln!(
            text,
            "a format that is not understood, {}",
            bytes(layout.file_len())
        );
        return text;
    };
    let understood = layout.understood_bytes().min(layout.file_len());
    let share = if layout.file_len() == 0 {
        0.0
    } else {
        100.0 * understood as f64 / layout.file_len() as f64
    };
    let _ = writeln!(
        text,
        "{}, {}, {share:.1} % in variables",
        format.name(),
        bytes(layout.file_len())
    );
    if let Some(problem) = layout.problem() {
        let _ = writeln!(text, "not all of it is understood: {problem}");
    }
    let mut rows =
        vec![["variable", "type", "shape", "pieces", "offset", "bytes"].map(String::from)];
    for (variable, place) in layout.variables().iter().zip(places(layout)) {
        rows.push([
            visible(&variable.path),
            variable.element.name(),
            dimensions(&variable.shape),
            stored(variable, &place),
            place.first.map_or("-".into(), |offset| offset.to_string()),
            place.bytes.to_string(),
        ]);
    }
    if rows.len() > 1 {
        text.push('\n');
        table(&mut text, &rows);
    }
    text
}

fn bytes(count: u64) -> String {
    match count {
        1 => "1 byte".to_owned(),
        _ => format!("{count} bytes"),
    }
}

/// How many bytes of a variable are in the file, and where they begin.
#[derive(Clone, Default)]
struct Place {
    first: Option<u64>,
    bytes: u64,
}

impl Place {
    fn add(&mut self, offset: u64, bytes: u64) {
        self.first = Some(self.first.map_or(offset, |first| first.min(offset)));
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

fn places(layout: &Layout) -> Vec<Place> {
    let mut places = vec![Place::default(); layout.variables().len()];
    let mut add = |variable: u32, offset, bytes| {
        if let Some(place) = places.get_mut(variable as usize) {
            place.add(offset, bytes);
        }
    };
    for extent in layout.extents() {
        match &extent.content {
            Content::Array { variable }
            | Content::Chunks { variable, .. }
            | Content::Filtered { variable, .. } => add(*variable, extent.offset, extent.len),
            Content::Records { stride, fields } => {
                for field in fields {
                    let slabs = extent.len.saturating_sub(field.offset).div_ceil(*stride);
                    let bytes = slabs.saturating_mul(field.len);
                    add(field.variable, extent.offset + field.offset, bytes);
                }
            }
        }
    }
    places
}

fn stored(variable: &Variable, place: &Place) -> String {
    let mut text = match &variable.chunk {
        Some(chunk) => format!("chunks {}", dimensions(chunk)),
        None if variable.interleaved => "records".into(),
        None if place.first.is_none() => "-".into(),
        None => "contiguous".into(),
    };
    if !variable.filters.is_empty() {
        let _ = write!(text, " {}", visible(&variable.filters.join("+")));
    }
    text
}

/// Names come from the file: control characters must not reach a terminal.
fn visible(name: &str) -> String {
    name.chars()
        .map(|letter| if letter.is_control() { '?' } else { letter })
        .collect()
}

fn table(text: &mut String, rows: &[[String; 6]]) {
    let mut widths = [0; 6];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    for row in rows {
        let mut line = String::new();
        for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            if column >= 4 {
                let _ = write!(line, "{cell:>width$}  ");
            } else {
                let _ = write!(line, "{cell:<width$}  ");
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ParseOptions, parse};

    #[test]
    fn what_is_not_understood_is_one_line() {
        let text = describe(&parse(&b"some words".to_vec(), &ParseOptions::default()));
        assert_eq!(text, "a format that is not understood, 10 bytes\n");
    }
}
