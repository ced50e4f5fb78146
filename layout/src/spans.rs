//! Splits a range of a file into spans that compress well as one.

use std::ops::Range;

use crate::extent::{Coding, Content, LayoutExtent};
use crate::layout::Layout;
use crate::pieces::{Meaning, Piece};
use crate::variable::{ByteOrder, Element, ElementKind};

/// The widest record that is worth treating as one element.
const MAX_RECORD_ELEMENT: u64 = 64;

/// A range of bytes to be compressed as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
    /// What most of it consists of, if that is known.
    pub element: Option<Element>,
    /// The effect of filters on it.
    pub coding: Coding,
    /// The variable that most of it belongs to.
    pub variable: Option<u32>,
}

/// A span that may still grow, and how many of its bytes are what it says.
struct PendingSpan {
    span: Span,
    weight: u64,
}

impl Layout {
    /// Splits `range` into spans, none shorter than `min` unless `range` is. A shorter one joins
    /// its neighbour; records whose slabs are all shorter stay whole.
    #[must_use]
    pub fn spans(&self, range: Range<u64>, min: u64) -> Vec<Span> {
        let mut pending: Vec<PendingSpan> = Vec::new();
        let mut at = range.start;
        let mut extents = self.extents.get(self.extent_at(at)..).unwrap_or_default();
        while at < range.end {
            // To the end of an extent, or up to where it begins.
            let end = match extents {
                [extent, ..] if extent.offset > at => extent.offset,
                [extent, ..] => extent.end(),
                [] => range.end,
            };
            let part = at..end.min(range.end);
            at = part.end;
            if let [extent, rest @ ..] = extents
                && extent.offset < end
            {
                extents = rest;
                if let Some(span) = self.records(extent, part.clone(), min) {
                    join(&mut pending, span, min);
                    continue;
                }
            }
            for piece in self.pieces(part) {
                join(&mut pending, self.span(&piece), min);
            }
        }
        if pending.last().is_some_and(|last| last.span.len < min)
            && let Some(short) = pending.pop()
        {
            match pending.last_mut() {
                Some(last) => last.merge(short),
                None => pending.push(short),
            }
        }
        pending.into_iter().map(|one| one.span).collect()
    }

    /// One piece as a span.
    fn span(&self, piece: &Piece) -> Span {
        let (variable, coding) = match piece.meaning {
            Meaning::Opaque => (None, Coding::Plain),
            Meaning::Elements { variable, .. } => (Some(variable), Coding::Plain),
            Meaning::Filtered { variable, coding } => (Some(variable), coding),
        };
        let element = match coding {
            Coding::Plain => variable.and_then(|number| self.element(number)),
            Coding::Rearranged | Coding::Compressed => None,
        };
        Span {
            offset: piece.offset,
            len: piece.len,
            element,
            coding,
            variable,
        }
    }

    fn element(&self, variable: u32) -> Option<Element> {
        self.variable(variable).map(|variable| variable.element)
    }

    /// A part of records whose slabs are all too short to stand alone.
    fn records(&self, extent: &LayoutExtent, range: Range<u64>, min: u64) -> Option<Span> {
        let Content::Records { stride, fields } = &extent.content else {
            return None;
        };
        let stride = *stride;
        if fields.iter().any(|field| field.len >= min) {
            return None;
        }
        let largest = fields.iter().max_by_key(|field| field.len);
        let variable = largest.map(|field| field.variable);
        let element = variable.and_then(|number| self.element(number));
        let alike = element.is_some_and(|element| {
            stride.is_multiple_of(u64::from(element.width.max(1)))
                && fields
                    .iter()
                    .all(|field| self.element(field.variable) == Some(element))
        });
        let element = if alike || stride > MAX_RECORD_ELEMENT {
            element
        } else {
            Some(Element {
                kind: ElementKind::Opaque,
                width: stride as u32,
                order: element.map_or(ByteOrder::Little, |element| element.order),
            })
        };
        Some(Span {
            offset: range.start,
            len: range.end - range.start,
            element,
            coding: Coding::Plain,
            variable,
        })
    }
}

/// Appends a span, or merges it into the one before if that is too short to stand alone.
fn join(pending: &mut Vec<PendingSpan>, span: Span, min: u64) {
    let weight = span.len;
    let next = PendingSpan { span, weight };
    match pending.last_mut() {
        Some(last) if last.span.len < min || last.is_like(&next) => last.merge(next),
        _ => pending.push(next),
    }
}

impl PendingSpan {
    fn is_like(&self, other: &Self) -> bool {
        self.span.element == other.span.element
            && self.span.coding == other.span.coding
            && self.span.variable == other.span.variable
    }

    /// Merges the span after it; the larger part determines the whole.
    fn merge(&mut self, next: Self) {
        let len = self.span.len + next.span.len;
        if self.is_like(&next) {
            self.weight += next.weight;
        } else if next.weight > self.weight {
            let offset = self.span.offset;
            *self = next;
            self.span.offset = offset;
        }
        self.span.len = len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pieces::tests::{mixed, records};

    #[test]
    fn a_chunk_that_crosses_a_variable_boundary_is_cut_there() {
        let layout = mixed();
        let found: Vec<_> = layout
            .spans(0..4000, 256)
            .into_iter()
            .map(|span| (span.offset, span.len, span.variable, span.coding))
            .collect();
        // Short stretches of metadata join what follows them.
        assert_eq!(
            found,
            [
                (0, 1100, Some(0), Coding::Plain),
                (1100, 1300, Some(1), Coding::Plain),
                (2400, 600, Some(2), Coding::Compressed),
                (3000, 1000, None, Coding::Plain),
            ]
        );
    }

    #[test]
    fn spans_cover_any_range_and_are_not_short() {
        for layout in [mixed(), records()] {
            for start in (0..3500).step_by(37) {
                for len in [1, 50, 300, 900] {
                    let mut at = start;
                    let spans = layout.spans(start..start + len, 128);
                    for span in &spans {
                        assert_eq!(span.offset, at);
                        assert!(span.len >= 128 || spans.len() == 1);
                        at += span.len;
                    }
                    assert_eq!(at, start + len);
                }
            }
        }
    }

    #[test]
    fn records_of_tiny_slabs_are_not_taken_apart() {
        let layout = records();
        let spans = layout.spans(100..1100, 64);
        assert_eq!(spans.len(), 1);
        let element = spans[0].element.unwrap();
        assert_eq!((element.kind, element.width), (ElementKind::Opaque, 20));
        assert!(layout.spans(100..400, 4).len() > 10);
    }
}
