//! The links of a group, in each of the three ways of storing them.

use super::btree1::{self, TreeKind};
use super::btree2;
use super::file::Hdf5File;
use super::heap::{FractalHeap, LocalHeap};
use super::object::{self, Object};
use crate::error::Error;
use crate::fields::Fields;

const SOFT: u32 = 2;

/// A hard link. Soft and external links are not followed: their targets are found through hard
/// links, or are not in the file.
pub(crate) struct Link {
    pub(crate) name: String,
    pub(crate) address: u64,
}

type Follow<'a> = dyn FnMut(&mut Hdf5File<'_, '_>, Link) -> Result<(), Error> + 'a;

/// Calls `follow` with every hard link of the group.
pub(crate) fn links(
    file: &mut Hdf5File<'_, '_>,
    object: &Object,
    follow: &mut Follow<'_>,
) -> Result<(), Error> {
    if let Some(message) = object.message(object::SYMBOL_TABLE) {
        symbol_table(file, &message.body, follow)?;
    }
    for message in object.all(object::LINK) {
        if let Some(link) = link(file, &message.body)? {
            follow(file, link)?;
        }
    }
    if let Some(message) = object.message(object::LINK_INFO) {
        dense(file, &message.body, follow)?;
    }
    Ok(())
}

/// B-tree of nodes of entries; names in a heap.
fn symbol_table(
    file: &mut Hdf5File<'_, '_>,
    body: &[u8],
    follow: &mut Follow<'_>,
) -> Result<(), Error> {
    let mut fields = Fields::new("symbol table message", body);
    let (tree, heap) = (fields.uint(file.offsets)?, fields.uint(file.offsets)?);
    let heap = LocalHeap::open(file, heap)?;
    let key_len = file.lengths;
    btree1::walk(
        file,
        TreeKind::Group,
        tree,
        key_len,
        &mut |file, _, child| {
            let head = file.read(child, 8)?;
            let mut fields = Fields::new("symbol table node", &head);
            fields.expect(b"SNOD")?;
            fields.skip(2)?;
            let count = usize::from(fields.u16()?);
            let entry = 2 * file.offsets + 24;
            let entries = file.read(child.saturating_add(8), (count * entry) as u64)?;
            for entry in entries.chunks_exact(entry) {
                let mut fields = Fields::new("symbol table entry", entry);
                let name = fields.uint(file.offsets)?;
                let address = fields.address(file.offsets)?;
                let cached = fields.u32()?;
                if let Some(address) = address.filter(|_| cached != SOFT) {
                    let name = heap.name(file, name)?;
                    follow(file, Link { name, address })?;
                }
            }
            Ok(())
        },
    )
}

/// B-tree of heap IDs; link messages in a heap.
fn dense(file: &mut Hdf5File<'_, '_>, body: &[u8], follow: &mut Follow<'_>) -> Result<(), Error> {
    let mut fields = Fields::new("link info message", body);
    fields.skip(1)?;
    let flags = fields.u8()?;
    if flags & 1 != 0 {
        fields.skip(8)?;
    }
    let heap = fields.address(file.offsets)?;
    let names = fields.address(file.offsets)?;
    let (Some(heap), Some(names)) = (heap, names) else {
        return Ok(());
    };
    let heap = FractalHeap::open(file, heap)?;
    btree2::walk(file, names, &mut |file, kind, record| {
        // By name: hash, heap ID.
        let id = record.get(4..).filter(|_| kind == 5);
        let id = id.ok_or(Error::Unsupported {
            what: "B-tree of links of type",
            found: u64::from(kind),
        })?;
        if let Some(message) = heap.object(file, id)?
            && let Some(link) = link(file, &message)?
        {
            follow(file, link)?;
        }
        Ok(())
    })
}

fn link(file: &Hdf5File<'_, '_>, body: &[u8]) -> Result<Option<Link>, Error> {
    let mut fields = Fields::new("link message", body);
    fields.skip(1)?;
    let flags = fields.u8()?;
    let kind = if flags & 0x08 != 0 { fields.u8()? } else { 0 };
    if flags & 0x04 != 0 {
        fields.skip(8)?;
    }
    if flags & 0x10 != 0 {
        fields.skip(1)?;
    }
    let len = fields.uint(1 << (flags & 3))?;
    let name = fields.take(usize::try_from(len).unwrap_or(usize::MAX))?;
    if kind != 0 {
        return Ok(None);
    }
    let address = fields.address(file.offsets)?;
    Ok(address.map(|address| Link {
        name: String::from_utf8_lossy(name).into_owned(),
        address,
    }))
}
