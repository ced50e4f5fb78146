//! What is known about the layout of a file while it is being written.

use std::ops::Range;

use shale_codec::{ByteOrder, ElementKind, Hint};

/// A layout parser's knowledge of a file.
pub trait LayoutHints: std::fmt::Debug + Send + Sync {
    /// Splits a range into parts worth compressing separately: in order, without a gap. A wrong
    /// answer only costs density.
    fn spans(&self, range: Range<u64>) -> Vec<HintSpan>;
}

/// A part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HintSpan {
    /// Where it is.
    pub range: Range<u64>,
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

/// The codec detects wider elements itself.
const WIDTH_MAX: u32 = 64;

impl Element {
    /// Whether the codec can use it.
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

/// The spans of a range by some hints; the whole range where they do not cover it in order.
pub(crate) fn spans(hints: Option<&dyn LayoutHints>, range: Range<u64>) -> Vec<HintSpan> {
    let whole = HintSpan {
        range: range.clone(),
        element: None,
    };
    let Some(hints) = hints else {
        return vec![whole];
    };
    let spans = hints.spans(range.clone());
    let mut at = range.start;
    for HintSpan { range, .. } in &spans {
        if range.start != at || range.end <= at {
            return vec![whole];
        }
        at = range.end;
    }
    if at == range.end { spans } else { vec![whole] }
}
