//! How to cut a range of a file so that each part compresses as one.

use std::ops::Range;

use crate::Layout;
use crate::extent::{Coding, Content, LayoutExtent};
use crate::pieces::{Meaning, Piece};
use crate::variable::{ByteOrder, Element, ElementKind};

/// The widest record that is worth being treated as one element.
const MAX_RECORD_ELEMENT: u64 = 64;

/// A range of bytes to be compressed as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
    /// What most of it consists of, if that is known.
    pub element: Option<Element>,
    /// Whether filters have been at it.
    pub coding: Coding,
    /// The variable that most of it belongs to.
    pub variable: Option<u32>,
}

/// A segment in the making, and how much of it is what it says.
struct Draft {
    segment: Segment,
    weight: u64,
}

impl Layout {
    /// Cuts `range` into segments, none shorter than `min` unless `range` is. What is shorter
    /// joins its neighbour; records whose slabs are all shorter stay whole.
    #[must_use]
    pub fn segments(&self, range: Range<u64>, min: u64) -> Vec<Segment> {
        let mut drafts: Vec<Draft> = Vec::new();
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
                if let Some(segment) = self.records(extent, part.clone(), min) {
                    join(&mut drafts, segment, min);
                    continue;
                }
            }
            for piece in self.pieces(part) {
                join(&mut drafts, self.segment(&piece), min);
            }
        }
        if drafts.last().is_some_and(|last| last.segment.len < min)
            && let Some(crumb) = drafts.pop()
        {
            match drafts.last_mut() {
                Some(last) => last.absorb(crumb),
                None => drafts.push(crumb),
            }
        }
        drafts.into_iter().map(|draft| draft.segment).collect()
    }

    /// One piece as a segment.
    fn segment(&self, piece: &Piece) -> Segment {
        let (variable, coding) = match piece.meaning {
            Meaning::Opaque => (None, Coding::Plain),
            Meaning::Elements { variable, .. } => (Some(variable), Coding::Plain),
            Meaning::Filtered { variable, coding } => (Some(variable), coding),
        };
        let element = match coding {
            Coding::Plain => variable.and_then(|number| self.element(number)),
            Coding::Rearranged | Coding::Compressed => None,
        };
        Segment {
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
    fn records(&self, extent: &LayoutExtent, range: Range<u64>, min: u64) -> Option<Segment> {
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
        Some(Segment {
            offset: range.start,
            len: range.end - range.start,
            element,
            coding: Coding::Plain,
            variable,
        })
    }
}

/// Appends a segment, or melts it into the one before if that is too short to stand alone.
fn join(drafts: &mut Vec<Draft>, segment: Segment, min: u64) {
    let weight = segment.len;
    let next = Draft { segment, weight };
    match drafts.last_mut() {
        Some(last) if last.segment.len < min || last.is_like(&next) => last.absorb(next),
        _ => drafts.push(next),
    }
}

impl Draft {
    fn is_like(&self, other: &Self) -> bool {
        self.segment.element == other.segment.element
            && self.segment.coding == other.segment.coding
            && self.segment.variable == other.segment.variable
    }

    /// Takes in what follows; the larger part says what the whole is.
    fn absorb(&mut self, next: Self) {
        let len = self.segment.len + next.segment.len;
        if self.is_like(&next) {
            self.weight += next.weight;
        } else if next.weight > self.weight {
            let offset = self.segment.offset;
            *self = next;
            self.segment.offset = offset;
        }
        self.segment.len = len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pieces::tests::{mixed, records};

    #[test]
    fn a_chunk_that_crosses_a_variable_boundary_is_cut_there() {
        let layout = mixed();
        let cut: Vec<_> = layout
            .segments(0..4000, 256)
            .into_iter()
            .map(|segment| {
                (
                    segment.offset,
                    segment.len,
                    segment.variable,
                    segment.coding,
                )
            })
            .collect();
        // The crumbs of metadata go with what follows them.
        assert_eq!(
            cut,
            [
                (0, 1100, Some(0), Coding::Plain),
                (1100, 1300, Some(1), Coding::Plain),
                (2400, 600, Some(2), Coding::Compressed),
                (3000, 1000, None, Coding::Plain),
            ]
        );
    }

    #[test]
    fn segments_cover_any_range_and_are_not_short() {
        for layout in [mixed(), records()] {
            for start in (0..3500).step_by(37) {
                for len in [1, 50, 300, 900] {
                    let mut at = start;
                    let segments = layout.segments(start..start + len, 128);
                    for segment in &segments {
                        assert_eq!(segment.offset, at);
                        assert!(segment.len >= 128 || segments.len() == 1);
                        at += segment.len;
                    }
                    assert_eq!(at, start + len);
                }
            }
        }
    }

    #[test]
    fn records_of_tiny_slabs_are_not_taken_apart() {
        let layout = records();
        let segments = layout.segments(100..1100, 64);
        assert_eq!(segments.len(), 1);
        let element = segments[0].element.unwrap();
        assert_eq!((element.kind, element.width), (ElementKind::Opaque, 20));
        assert!(layout.segments(100..400, 4).len() > 10);
    }
}
