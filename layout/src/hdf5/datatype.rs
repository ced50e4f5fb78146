//! Datatype messages: what an element is.

use crate::Error;
use crate::fields::Fields;
use crate::variable::{ByteOrder, Element, ElementKind, bytes};

const MAX_DEPTH: usize = 8;

/// What the elements are, and the dimensions that their type brings along.
pub(crate) fn parse(body: &[u8]) -> Result<(Element, Vec<u64>), Error> {
    let mut inner = Vec::new();
    let element = level(&mut Fields::new("datatype message", body), &mut inner, 0)?;
    Ok((element, inner))
}

fn level(fields: &mut Fields<'_>, inner: &mut Vec<u64>, depth: usize) -> Result<Element, Error> {
    let head = fields.u8()?;
    let (class, version) = (head & 15, head >> 4);
    let bits = fields.uint(3)?;
    let width = fields.u32()?;
    let order = if bits & 1 != 0 {
        ByteOrder::Big
    } else {
        ByteOrder::Little
    };
    let plain = |kind, order| Ok(Element { kind, width, order });
    if depth > MAX_DEPTH || width == 0 {
        return Err(Error::Malformed {
            what: "datatype of class",
            found: u64::from(class),
        });
    }
    match class {
        0 if bits & 8 != 0 => plain(ElementKind::Int, order),
        0 | 4 => plain(ElementKind::Uint, order),
        1 => plain(ElementKind::Float, order),
        2 => plain(ElementKind::Int, order),
        3 => plain(ElementKind::Char, ByteOrder::Little),
        // Enumerations are what their base is.
        8 => level(fields, inner, depth + 1),
        10 => array(fields, inner, depth, version, width),
        // Complex numbers: two of their base.
        11 => {
            let start = inner.len();
            inner.push(2);
            let element = level(fields, inner, depth + 1)?;
            Ok(checked(element, inner, start, width))
        }
        // Opaque, compound, reference, variable length.
        _ => plain(ElementKind::Opaque, ByteOrder::Little),
    }
}

fn array(
    fields: &mut Fields<'_>,
    inner: &mut Vec<u64>,
    depth: usize,
    version: u8,
    width: u32,
) -> Result<Element, Error> {
    let start = inner.len();
    let rank = usize::from(fields.u8()?);
    if version < 3 {
        fields.skip(3)?;
    }
    for _ in 0..rank {
        inner.push(fields.uint(4)?);
    }
    if version < 3 {
        fields.skip(4 * rank)?;
    }
    let element = level(fields, inner, depth + 1)?;
    Ok(checked(element, inner, start, width))
}

/// The element, if so many of it are as wide as the type; otherwise the type as one.
fn checked(element: Element, inner: &mut Vec<u64>, start: usize, width: u32) -> Element {
    let own = inner.get(start..).unwrap_or_default();
    if bytes(element.width, own) == Some(u64::from(width)) && own.len() <= 32 {
        return element;
    }
    inner.truncate(start);
    Element {
        kind: ElementKind::Opaque,
        width,
        order: ByteOrder::Little,
    }
}
