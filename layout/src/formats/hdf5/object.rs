//! Object headers: the messages that make up a group or a dataset.

use super::file::Hdf5File;
use crate::error::Error;
use crate::fields::Fields;
use crate::reader::MAX_STRUCTURE;

pub(crate) const DATASPACE: u16 = 0x01;
pub(crate) const LINK_INFO: u16 = 0x02;
pub(crate) const DATATYPE: u16 = 0x03;
pub(crate) const OLD_FILL: u16 = 0x04;
pub(crate) const FILL: u16 = 0x05;
pub(crate) const LINK: u16 = 0x06;
pub(crate) const LAYOUT: u16 = 0x08;
pub(crate) const FILTERS: u16 = 0x0b;
const ATTRIBUTE: u16 = 0x0c;
const CONTINUATION: u16 = 0x10;
pub(crate) const SYMBOL_TABLE: u16 = 0x11;

const SHARED: u8 = 2;
const MAX_CONTINUATIONS: usize = 256;

/// The messages of an object that matter here.
#[derive(Default)]
pub(crate) struct Object {
    messages: Vec<Message>,
    /// Whether it carries the mark of a NetCDF library.
    pub(crate) netcdf: bool,
    bytes: u64,
}

/// One message.
pub(crate) struct Message {
    kind: u16,
    /// The body is a reference to where the message is.
    pub(crate) shared: bool,
    pub(crate) body: Vec<u8>,
}

impl Object {
    pub(crate) fn message(&self, kind: u16) -> Option<&Message> {
        self.messages.iter().find(|message| message.kind == kind)
    }

    /// All messages of a kind.
    pub(crate) fn all(&self, kind: u16) -> impl Iterator<Item = &Message> {
        self.messages
            .iter()
            .filter(move |message| message.kind == kind)
    }

    fn add(&mut self, kind: u16, flags: u8, body: &[u8]) -> Result<(), Error> {
        match kind {
            DATASPACE | LINK_INFO | DATATYPE | OLD_FILL | FILL | LINK | LAYOUT | FILTERS
            | SYMBOL_TABLE => {}
            ATTRIBUTE => {
                let name = b"_NCProperties\0";
                self.netcdf |= body.windows(name.len()).take(16).any(|part| part == name);
                return Ok(());
            }
            _ => return Ok(()),
        }
        self.bytes += body.len() as u64 + 64;
        if self.bytes > MAX_STRUCTURE {
            return Err(Error::Unsupported {
                what: "object header of length",
                found: self.bytes,
            });
        }
        self.messages.push(Message {
            kind,
            shared: flags & SHARED != 0,
            body: body.to_vec(),
        });
        Ok(())
    }
}

/// Reads the object header at `address`.
pub(crate) fn read(file: &mut Hdf5File<'_, '_>, address: u64) -> Result<Object, Error> {
    let head = file.read(address, 16)?;
    if head.starts_with(b"OHDR") {
        read_v2(file, address, &head)
    } else {
        read_v1(file, address, &head)
    }
}

fn read_v1(file: &mut Hdf5File<'_, '_>, address: u64, head: &[u8]) -> Result<Object, Error> {
    let mut fields = Fields::new("object header", head);
    let version = fields.u8()?;
    if version != 1 {
        return Err(Error::Malformed {
            what: "object header version",
            found: u64::from(version),
        });
    }
    fields.skip(7)?;
    let len = u64::from(fields.u32()?);
    let mut object = Object::default();
    let mut blocks = vec![HeaderBlock {
        address: address.saturating_add(16),
        len,
    }];
    let mut next = 0;
    while let Some(&HeaderBlock { address, len }) = blocks.get(next) {
        next += 1;
        let block = file.read(address, len)?;
        let mut fields = Fields::new("object header message", &block);
        while fields.rest().len() >= 8 {
            let kind = fields.u16()?;
            let size = fields.u16()?;
            let flags = fields.u8()?;
            fields.skip(3)?;
            let body = fields.take(usize::from(size))?;
            take(file, &mut object, &mut blocks, kind, flags, body)?;
        }
    }
    Ok(object)
}

fn read_v2(file: &mut Hdf5File<'_, '_>, address: u64, head: &[u8]) -> Result<Object, Error> {
    let mut fields = Fields::new("object header", head);
    fields.skip(4)?;
    let version = fields.u8()?;
    if version != 2 {
        return Err(Error::Unsupported {
            what: "object header version",
            found: u64::from(version),
        });
    }
    let flags = fields.u8()?;
    let times = if flags & 0x20 != 0 { 16 } else { 0 };
    let phases = if flags & 0x10 != 0 { 4 } else { 0 };
    let at = address.saturating_add(6 + times + phases);
    let width = 1 << (flags & 3);
    let len = file.read(at, width)?;
    let len = Fields::new("object header", &len).uint(width as usize)?;
    let mut object = Object::default();
    let mut blocks = vec![HeaderBlock {
        address: at + width,
        len,
    }];
    let mut next = 0;
    while let Some(&HeaderBlock { address, len }) = blocks.get(next) {
        let block = file.read(address, len)?;
        let mut block = block.as_slice();
        if next > 0 {
            // A continuation has a signature before and a checksum after its messages.
            let mut fields = Fields::new("object header continuation", block);
            fields.expect(b"OCHK")?;
            let inner = fields.rest().len().saturating_sub(4);
            block = fields.take(inner)?;
        }
        next += 1;
        let order = if flags & 4 != 0 { 2 } else { 0 };
        let mut fields = Fields::new("object header message", block);
        while fields.rest().len() >= 4 + order {
            let kind = u16::from(fields.u8()?);
            let size = fields.u16()?;
            let flags = fields.u8()?;
            fields.skip(order)?;
            let body = fields.take(usize::from(size))?;
            take(file, &mut object, &mut blocks, kind, flags, body)?;
        }
    }
    Ok(object)
}

/// A part of an object header.
#[derive(Clone, Copy)]
struct HeaderBlock {
    address: u64,
    len: u64,
}

/// Keeps a message, or notes where the header continues.
fn take(
    file: &Hdf5File<'_, '_>,
    object: &mut Object,
    blocks: &mut Vec<HeaderBlock>,
    kind: u16,
    flags: u8,
    body: &[u8],
) -> Result<(), Error> {
    if kind != CONTINUATION {
        return object.add(kind, flags, body);
    }
    let mut fields = Fields::new("object header continuation", body);
    let address = fields.uint(file.offsets)?;
    let len = fields.uint(file.lengths)?;
    if blocks.len() >= MAX_CONTINUATIONS {
        return Err(Error::Malformed {
            what: "number of object header continuations",
            found: blocks.len() as u64,
        });
    }
    blocks.push(HeaderBlock { address, len });
    Ok(())
}

/// The body of a message of `object`; where it is shared, the one of the object it refers to.
pub(crate) fn body(
    file: &mut Hdf5File<'_, '_>,
    object: &Object,
    kind: u16,
) -> Result<Option<Vec<u8>>, Error> {
    let Some(message) = object.message(kind) else {
        return Ok(None);
    };
    if !message.shared {
        return Ok(Some(message.body.clone()));
    }
    let mut fields = Fields::new("shared message", &message.body);
    let version = fields.u8()?;
    let place = fields.u8()?;
    match (version, place) {
        (1, _) => fields.skip(6)?,
        (2, _) | (3, 2) => {}
        _ => {
            return Err(Error::Unsupported {
                what: "shared message in place",
                found: u64::from(place),
            });
        }
    }
    let address = fields.uint(file.offsets)?;
    let holder = read(file, address)?;
    let found = holder.message(kind).filter(|message| !message.shared);
    Ok(found.map(|message| message.body.clone()))
}
