//! What is known of the layout of a file while it is being written.

use std::ops::Range;

use shale_codec::{ByteOrder, ElementKind, Hint};

use super::state::File;

/// What a layout parser knows of a file.
pub trait LayoutHints: std::fmt::Debug + Send + Sync {
    /// Splits a range into parts that are worth being compressed on their own: in order, without
    /// a gap. A wrong answer only costs density.
    fn spans(&self, start: u64, end: u64) -> Vec<HintSpan>;
}

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HintSpan {
    /// First byte.
    pub start: u64,
    /// First byte after it.
    pub end: u64,
    /// What it consists of, if that is known.
    pub element: Option<Element>,
}

/// What the elements of an array are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element {
    /// Bytes of one.
    pub width: u32,
    /// How to read one.
    pub kind: ElementKind,
    /// Its byte order.
    pub order: ByteOrder,
}

/// The codec itself finds out about wider elements.
const WIDTH_MAX: u32 = 64;

impl Element {
    /// Whether the codec can make use of it.
    pub(crate) fn is_useful(&self) -> bool {
        (1..=WIDTH_MAX).contains(&self.width)
    }
}

impl HintSpan {
    pub(crate) fn hint(&self) -> Hint<'static> {
        match self.element.filter(Element::is_useful) {
            Some(element) => Hint::Elements {
                width: element.width as usize,
                kind: element.kind,
                order: element.order,
            },
            None => Hint::Unknown,
        }
    }
}

impl File {
    /// The spans of a range; the whole range where nothing is known.
    pub(crate) fn spans(&self, range: Range<u64>) -> Vec<HintSpan> {
        let hints = self.hints.lock().clone();
        spans(hints.as_deref(), range)
    }
}

/// The spans of a range by some hints; the whole range where they do not cover it in order.
pub(crate) fn spans(hints: Option<&dyn LayoutHints>, range: Range<u64>) -> Vec<HintSpan> {
    let Range { start, end } = range;
    let whole = HintSpan {
        start,
        end,
        element: None,
    };
    let Some(hints) = hints else {
        return vec![whole];
    };
    let spans = hints.spans(start, end);
    let mut at = start;
    for span in &spans {
        if span.start != at || span.end <= at {
            return vec![whole];
        }
        at = span.end;
    }
    if at == end { spans } else { vec![whole] }
}
