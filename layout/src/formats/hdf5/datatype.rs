//! Datatype messages: what an element is.

use crate::error::Error;
use crate::fields::Fields;
use crate::variable::{ByteOrder, Element, ElementKind, bytes};

const MAX_DEPTH: usize = 8;

/// The element, and the dimensions that an array type adds.
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
        6 => {
            let count = bits & 0xffff;
            let parts = alike(fields, version, width, count);
            if let Some(element) = parts {
                inner.push(count);
                return Ok(element);
            }
            plain(ElementKind::Opaque, ByteOrder::Little)
        }
        0 if bits & 8 != 0 => plain(ElementKind::Int, order),
        0 | 4 => plain(ElementKind::Uint, order),
        1 => plain(ElementKind::Float, order),
        2 => plain(ElementKind::Int, order),
        3 => plain(ElementKind::Char, ByteOrder::Little),
        // Enumerations are stored as their base type.
        8 => level(fields, inner, depth + 1),
        10 => array(fields, inner, depth, version, width),
        // Complex numbers: two of their base.
        11 => {
            let start = inner.len();
            inner.push(2);
            let element = level(fields, inner, depth + 1)?;
            Ok(checked(element, inner, start, width))
        }
        // Opaque, reference, variable length.
        _ => plain(ElementKind::Opaque, ByteOrder::Little),
    }
}

/// The element that a compound type consists of, if its members are numbers of one kind that
/// lie back to back: complex numbers, vectors.
fn alike(fields: &mut Fields<'_>, version: u8, width: u32, count: u64) -> Option<Element> {
    let mut element = None;
    for number in 0..count {
        let name = fields.rest().iter().position(|&byte| byte == 0)? + 1;
        let (name, offset_width, more) = match version {
            1 => (name.next_multiple_of(8), 4, 28),
            2 => (name.next_multiple_of(8), 4, 0),
            _ => (name, (width.max(1).ilog2() / 8 + 1) as usize, 0),
        };
        fields.skip(name).ok()?;
        let offset = fields.uint(offset_width).ok()?;
        fields.skip(more).ok()?;
        // Properties of integers and floating-point numbers; other members end it.
        let properties = match fields.rest().first()? & 15 {
            0 => 4,
            1 => 12,
            _ => return None,
        };
        let member = level(fields, &mut Vec::new(), 1).ok()?;
        fields.skip(properties).ok()?;
        if offset != number * u64::from(member.width) || *element.get_or_insert(member) != member {
            return None;
        }
    }
    element.filter(|element| u64::from(element.width) * count == u64::from(width))
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

/// The element, if an array of it is as wide as the type; otherwise the type as one element.
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
