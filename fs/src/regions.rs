//! From what a file means to how it is cut.

use shale_layout::{Content, Element, Layout, Variable};
use shale_store::{Block, ByteOrder, ElementKind, Region};

/// Fields of a record at most; beyond, records stay linear.
const MAX_FIELDS: usize = 1024;

/// The regions of a file that are worth being stored as tiles.
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
            Content::Records { stride, fields } if fields.len() <= MAX_FIELDS => {
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

fn chunks(offset: u64, len: u64, chunk_len: u64, variable: &Variable) -> Option<Region> {
    let shape = variable.chunk.as_ref()?;
    if chunk_len == len && chunk_len > 0 {
        // A single one is an array like any other.
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

/// An element as the store calls it.
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
