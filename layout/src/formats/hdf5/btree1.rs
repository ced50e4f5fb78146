//! Version 1 B-trees.

use super::file::Hdf5File;
use crate::error::Error;
use crate::fields::Fields;

/// No tree needs more levels than this.
const MAX_LEVEL: u8 = 16;

/// What a tree indexes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum TreeKind {
    Group = 0,
    Chunks = 1,
}

/// Takes the key and the child of an entry.
type Leaf<'a> = dyn FnMut(&mut Hdf5File<'_, '_>, &[u8], u64) -> Result<(), Error> + 'a;

/// Calls `leaf` with key and child of every entry of the tree at `address`, in order.
pub(crate) fn walk(
    file: &mut Hdf5File<'_, '_>,
    kind: TreeKind,
    address: u64,
    key_len: usize,
    leaf: &mut Leaf<'_>,
) -> Result<(), Error> {
    node(file, kind, address, key_len, None, leaf)
}

fn node(
    file: &mut Hdf5File<'_, '_>,
    kind: TreeKind,
    address: u64,
    key_len: usize,
    expected: Option<u8>,
    leaf: &mut Leaf<'_>,
) -> Result<(), Error> {
    let head = file.read(address, 8)?;
    let mut fields = Fields::new("B-tree node", &head);
    fields.expect(b"TREE")?;
    let (found, level) = (fields.u8()?, fields.u8()?);
    if found != kind as u8 || level > MAX_LEVEL || expected.is_some_and(|one| one != level) {
        return Err(Error::Malformed {
            what: "kind or level of a B-tree node",
            found: u64::from(found) << 8 | u64::from(level),
        });
    }
    let count = fields.u16()?;
    let entry = key_len + file.offsets;
    let len = usize::from(count) * entry;
    // Siblings are found through the parents.
    let start = address.saturating_add(8 + 2 * file.offsets as u64);
    let entries = file.read(start, len as u64)?;
    file.reader.charge(len)?;
    for entry in entries.chunks_exact(entry) {
        let mut fields = Fields::new("B-tree node", entry);
        let key = fields.take(key_len)?;
        let Some(child) = fields.address(file.offsets)? else {
            continue;
        };
        if level == 0 {
            leaf(file, key, child)?;
        } else {
            node(file, kind, child, key_len, Some(level - 1), leaf)?;
        }
    }
    file.reader.release(len);
    Ok(())
}
