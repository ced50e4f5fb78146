//! What is known of a file while it is being written.

use shale_codec::{ByteOrder, ElementKind, Hint};

use crate::file::File;

/// Somebody who understands a file.
pub trait Advice: std::fmt::Debug + Send + Sync {
    /// Cuts a range into parts that are worth being compressed on their own: in order, without a
    /// gap. A wrong answer costs density, no more.
    fn segments(&self, start: u64, end: u64) -> Vec<Segment>;
}

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First byte.
    pub start: u64,
    /// First byte behind it.
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

/// Wider elements are left to the codec to find out about.
const WIDTH_MAX: u32 = 64;

impl Element {
    /// Whether the codec can make use of it.
    pub(crate) fn is_useful(&self) -> bool {
        (1..=WIDTH_MAX).contains(&self.width)
    }
}

impl Segment {
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

/// The segments of a range of a file; the whole range where nobody knows better.
pub(crate) fn segments(file: &File, start: u64, end: u64) -> Vec<Segment> {
    let advice = file.advice.lock().clone();
    cut(advice.as_deref(), start, end)
}

/// The same for any who give advice.
pub(crate) fn cut(advice: Option<&dyn Advice>, start: u64, end: u64) -> Vec<Segment> {
    let whole = Segment {
        start,
        end,
        element: None,
    };
    let Some(advice) = advice else {
        return vec![whole];
    };
    let segments = advice.segments(start, end);
    let mut at = start;
    for segment in &segments {
        if segment.start != at || segment.end <= at {
            return vec![whole];
        }
        at = segment.end;
    }
    if at == end { segments } else { vec![whole] }
}
