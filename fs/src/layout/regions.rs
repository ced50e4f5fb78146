//! Regions of a file that are worth storing as tiles, from its layout.

use shale_layout::{Content, Element, Layout, Variable};
use shale_store::{Block, ByteOrder, ElementKind, Region};

/// Most fields of a record; records with more stay linear.
const MAX_FIELDS: usize = 1024;
/// Records whose fields are shorter on average stay linear, too: a sequential reader would look up
/// a tile every few bytes.
const SHORT_FIELD: u64 = 512;

/// The regions of a file that are worth storing as tiles.
pub(crate) fn of(layout: &Layout) -> Vec<Region> {
    let mut regions = Vec::new();
    for extent in layout.extents() {
        let region = match &extent.content {
            Content::Array { variable } => layout
                .variable(*variable)
                .and_then(|variable| array(extent.offset, extent.len, variable)),
            Content::Chunks {
                variable,
                chunk_len,
                ..
            } => layout
                .variable(*variable)
                .and_then(|variable| chunks(extent.offset, extent.len, *chunk_len, variable)),
            Content::Records { stride, fields }
                if fields.len() <= MAX_FIELDS && *stride >= fields.len() as u64 * SHORT_FIELD =>
            {
                let blocks = fields
                    .iter()
                    .filter_map(|field| {
                        let variable = layout.variable(field.variable)?;
                        Some(block(
                            field.offset,
                            field.len,
                            variable.element,
                            variable.slab_shape(),
                        ))
                    })
                    .collect();
                Some(Region {
                    offset: extent.offset,
                    records: extent.len / (*stride).max(1),
                    record: *stride,
                    blocks,
                })
            }
            Content::Records { .. } | Content::Filtered { .. } => None,
        };
        regions.extend(region);
    }
    regions
}

fn array(offset: u64, len: u64, variable: &Variable) -> Option<Region> {
    let mut shape = &variable.shape[..];
    while let [1, rest @ ..] = shape
        && !rest.is_empty()
    {
        shape = rest;
    }
    let (_, inner) = shape.split_first()?;
    let record = inner
        .iter()
        .try_fold(u64::from(variable.element.width), |all, &n| {
            all.checked_mul(n)
        })
        .filter(|&record| record > 0)?;
    Some(Region {
        offset,
        // The last row may not have been written yet.
        records: len / record,
        record,
        blocks: vec![block(0, record, variable.element, inner)],
    })
}

/// Adjacent plain chunks of a variable.
pub(crate) fn chunks(offset: u64, len: u64, chunk_len: u64, variable: &Variable) -> Option<Region> {
    let shape = variable.chunk.as_ref()?;
    if chunk_len == len && chunk_len > 0 {
        // A single chunk is an array like any other.
        let whole = Variable {
            shape: shape.clone(),
            ..variable.clone()
        };
        return array(offset, len, &whole);
    }
    Some(Region {
        offset,
        records: len.checked_div(chunk_len)?,
        record: chunk_len,
        blocks: vec![block(0, chunk_len, variable.element, shape)],
    })
}

/// A block of `len` bytes; with its shape if that agrees.
fn block(at: u64, len: u64, element: Element, shape: &[u64]) -> Block {
    let width = u64::from(element.width.max(1));
    let shaped = shape.iter().try_fold(width, |all, &n| all.checked_mul(n)) == Some(len);
    let (width, dims) = if shaped {
        (element.width, shape.to_vec())
    } else if len.is_multiple_of(width) {
        (element.width, vec![len / width])
    } else {
        (1, vec![len])
    };
    Block {
        at,
        width,
        kind: kind(element.kind),
        order: order(element.order),
        dims,
    }
}

/// An element in the terms of the store.
pub(crate) fn element(element: Element) -> shale_store::Element {
    shale_store::Element {
        width: element.width,
        kind: kind(element.kind),
        order: order(element.order),
    }
}

fn kind(kind: shale_layout::ElementKind) -> ElementKind {
    match kind {
        shale_layout::ElementKind::Float => ElementKind::Float,
        shale_layout::ElementKind::Int => ElementKind::Int,
        shale_layout::ElementKind::Uint => ElementKind::Uint,
        shale_layout::ElementKind::Char | shale_layout::ElementKind::Opaque => ElementKind::Opaque,
    }
}

fn order(order: shale_layout::ByteOrder) -> ByteOrder {
    match order {
        shale_layout::ByteOrder::Little => ByteOrder::Little,
        shale_layout::ByteOrder::Big => ByteOrder::Big,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A classic file with two float variables of `width` values in each of 40,000 records.
    fn records(width: u32) -> Layout {
        let mut header = Vec::new();
        let mut words = |values: &[u32]| {
            for value in values {
                header.extend_from_slice(&value.to_be_bytes());
            }
        };
        let (first, second) = (256, 256 + 4 * width);
        let name = |letter: u8| [1, u32::from(letter) << 24];
        words(&[u32::from_be_bytes(*b"CDF\x01"), 40_000]);
        words(&[10, 2]);
        words(&[&name(b't')[..], &[0], &name(b'x'), &[width]].concat());
        words(&[0, 0, 11, 2]);
        for (letter, begin) in [(b'a', first), (b'b', second)] {
            words(&[&name(letter)[..], &[2, 0, 1], &[0, 0, 5, 4 * width, begin]].concat());
        }
        assert!(header.len() <= 256);
        header.resize(256 + 40_000 * 8 * width as usize, 0);
        shale_layout::parse(&&header[..], &shale_layout::ParseOptions::default())
    }

    #[test]
    fn records_of_short_fields_are_not_cut_into_runs_of_a_few_bytes() {
        assert_eq!(records(128).variables().len(), 2);
        assert!(of(&records(1)).is_empty());
        assert!(of(&records(127)).is_empty());
        let wide = of(&records(128));
        assert_eq!(wide.len(), 1);
        assert_eq!(wide[0].blocks.len(), 2);
    }
}
