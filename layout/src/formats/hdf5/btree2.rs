//! Version 2 B-trees.

use super::file::Hdf5File;
use crate::error::Error;
use crate::fields::Fields;

const MAX_DEPTH: u16 = 16;
/// Signature, version, type and checksum of a node.
const NODE_OVERHEAD: u64 = 10;

struct Tree {
    kind: u8,
    record_len: u64,
    /// Bytes of the number of records in a child.
    count_width: usize,
    /// Bytes of the number of records below a child, by the child's level.
    total_width: Vec<usize>,
}

/// Takes the type of a tree and a record.
type Visit<'a> = dyn FnMut(&mut Hdf5File<'_, '_>, u8, &[u8]) -> Result<(), Error> + 'a;

/// Calls `visit` with the type of the tree and every record, in order.
pub(crate) fn walk(
    file: &mut Hdf5File<'_, '_>,
    address: u64,
    visit: &mut Visit<'_>,
) -> Result<(), Error> {
    let len = 16 + file.offsets as u64 + 2;
    let head = file.read(address, len)?;
    let mut fields = Fields::new("B-tree header", &head);
    fields.expect(b"BTHD")?;
    fields.skip(1)?;
    let kind = fields.u8()?;
    let node_len = u64::from(fields.u32()?);
    let record_len = u64::from(fields.u16()?);
    let depth = fields.u16()?;
    fields.skip(2)?;
    let root = fields.address(file.offsets)?;
    let count = u64::from(fields.u16()?);
    if record_len == 0 || depth > MAX_DEPTH || node_len < NODE_OVERHEAD + record_len {
        return Err(Error::Malformed {
            what: "B-tree header",
            found: record_len,
        });
    }
    let mut most = (node_len - NODE_OVERHEAD) / record_len;
    let count_width = width_of(most);
    let mut total_width = vec![0];
    let mut below = most;
    for level in 1..=depth {
        let pointer = file.offsets as u64
            + count_width as u64
            + total_width.last().map_or(0, |&width| width as u64);
        most = node_len.saturating_sub(NODE_OVERHEAD + pointer) / (record_len + pointer);
        below = (most + 1).saturating_mul(below).saturating_add(most);
        if level < depth {
            total_width.push(width_of(below));
        }
    }
    let tree = Tree {
        kind,
        record_len,
        count_width,
        total_width,
    };
    match root {
        Some(root) => node(file, &tree, root, count, depth, visit),
        None => Ok(()),
    }
}

/// Bytes that a number up to `limit` takes.
fn width_of(limit: u64) -> usize {
    (limit.max(1).ilog2() / 8 + 1) as usize
}

fn node(
    file: &mut Hdf5File<'_, '_>,
    tree: &Tree,
    address: u64,
    count: u64,
    level: u16,
    visit: &mut Visit<'_>,
) -> Result<(), Error> {
    let total_width = match level {
        0 | 1 => 0,
        _ => tree
            .total_width
            .get(usize::from(level) - 1)
            .copied()
            .unwrap_or(8),
    };
    let pointer = (file.offsets + tree.count_width + total_width) as u64;
    let mut len = 6 + count * tree.record_len;
    if level > 0 {
        len += (count + 1) * pointer;
    }
    let bytes = file.read(address, len)?;
    file.reader.charge(len as usize)?;
    let mut fields = Fields::new("B-tree node", &bytes);
    fields.expect(if level > 0 { b"BTIN" } else { b"BTLF" })?;
    fields.skip(2)?;
    let mut records = Fields::new(
        "B-tree node",
        fields.take((count * tree.record_len) as usize)?,
    );
    for number in 0..=count {
        if level > 0 {
            let child = fields.address(file.offsets)?;
            let below = fields.uint(tree.count_width)?;
            fields.skip(total_width)?;
            if let Some(child) = child {
                node(file, tree, child, below, level - 1, visit)?;
            }
        }
        if number < count {
            visit(file, tree.kind, records.take(tree.record_len as usize)?)?;
        }
    }
    file.reader.release(len as usize);
    Ok(())
}
