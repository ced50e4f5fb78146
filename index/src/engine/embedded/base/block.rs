//! A block: neighbouring keys with their values, one value of sled.
//!
//! sled keeps at most 16 entries a page and about 250 bytes of memory for every page, so keys
//! stored one by one would cost memory in proportion to the index. Blocks of a few keys each reduce
//! that to a tenth, and make loading ten times as fast.
//!
//! ```text
//! u32     crc32c of the block's first key (as in sled's key), then everything below
//! varint  length of `end`, then `end`: the first key that belongs to the next block
//!         (empty in the last block)
//! entries, in key order:
//!   u8      1 = under a lease, 2 = large (bits)
//!   varint  bytes shared with the key before
//!   varint  length of the rest of the key, then the rest
//!   varint  version
//!   varint  version - created
//!   varint  length of the value
//!   the value; or for a large one u32 crc32c of it: the value itself is in pieces elsewhere
//! ```
//! A block covers the keys from its own up to `end`, with no room between blocks. A block that
//! sled loses is therefore noticed by the first reader of its range.

use std::sync::Arc;

use crate::encoding::{Reader, put_bytes, put_varint};
use crate::engine::embedded::memtable::Slot;
use crate::kv::Version;

const LEASED: u8 = 1;
const LARGE: u8 = 2;

/// Where the value of an entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Payload {
    /// Here.
    Inline(Arc<[u8]>),
    /// In pieces beside the blocks.
    Large {
        /// Its length.
        len: u64,
        /// Its crc32c.
        crc: u32,
    },
}

/// A live key of the base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: Vec<u8>,
    pub(crate) version: Version,
    pub(crate) created: Version,
    pub(crate) leased: bool,
    pub(crate) payload: Payload,
}

impl Entry {
    /// Bytes it takes in a block, about.
    pub(super) fn size(&self) -> usize {
        let value = match &self.payload {
            Payload::Inline(value) => value.len(),
            Payload::Large { .. } => 8,
        };
        self.key.len() + value + 8
    }

    /// The state it stands for, given its value.
    pub(crate) fn slot(&self, value: Arc<[u8]>) -> Slot {
        let Self {
            version,
            created,
            leased,
            ..
        } = *self;
        Slot {
            version,
            created,
            value: Some(value),
            leased,
        }
    }
}

/// A decoded block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// First key that it does not cover; empty for none.
    pub(crate) end: Vec<u8>,
    pub(crate) entries: Vec<Entry>,
}

/// Writes a block.
pub(crate) fn encode(start: &[u8], end: &[u8], entries: &[Entry]) -> Vec<u8> {
    let size: usize = entries.iter().map(Entry::size).sum();
    let mut out = Vec::with_capacity(size + end.len() + 16);
    out.extend_from_slice(&[0; 4]);
    put_bytes(&mut out, end);
    let mut previous: &[u8] = &[];
    for entry in entries {
        let large = matches!(entry.payload, Payload::Large { .. });
        out.push(if entry.leased { LEASED } else { 0 } | if large { LARGE } else { 0 });
        let shared = previous
            .iter()
            .zip(&entry.key)
            .take_while(|(a, b)| a == b)
            .count();
        put_varint(&mut out, shared as u64);
        put_bytes(&mut out, &entry.key[shared..]);
        put_varint(&mut out, entry.version);
        put_varint(&mut out, entry.version.wrapping_sub(entry.created));
        match &entry.payload {
            Payload::Inline(value) => put_bytes(&mut out, value),
            Payload::Large { len, crc } => {
                put_varint(&mut out, *len);
                out.extend_from_slice(&crc.to_le_bytes());
            }
        }
        previous = &entry.key;
    }
    let crc = checksum(start, &out[4..]);
    out[..4].copy_from_slice(&crc.to_le_bytes());
    out
}

fn checksum(start: &[u8], rest: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(start), rest)
}

/// An entry whose value is still in the block.
struct Raw<'a> {
    flags: u8,
    version: Version,
    created: Version,
    len: u64,
    value: &'a [u8],
}

impl Raw<'_> {
    fn entry(&self, key: Vec<u8>) -> Option<Entry> {
        let payload = if self.flags & LARGE == 0 {
            Payload::Inline(Arc::from(self.value))
        } else {
            Payload::Large {
                len: self.len,
                crc: u32::from_le_bytes(self.value.try_into().ok()?),
            }
        };
        let (version, created) = (self.version, self.created);
        Some(Entry {
            key,
            version,
            created,
            leased: self.flags & LEASED != 0,
            payload,
        })
    }
}

/// Reads the next entry; `key` holds the previous key and then the key of this entry.
fn next<'a>(reader: &mut Reader<'a>, key: &mut Vec<u8>) -> Option<Raw<'a>> {
    let flags = reader.byte()?;
    let shared = usize::try_from(reader.varint()?).ok()?;
    if shared > key.len() || flags & !(LEASED | LARGE) != 0 {
        return None;
    }
    key.truncate(shared);
    key.extend_from_slice(reader.bytes()?);
    let version = reader.varint()?;
    let created = version.wrapping_sub(reader.varint()?);
    let len = reader.varint()?;
    let stored = if flags & LARGE == 0 {
        usize::try_from(len).ok()?
    } else {
        4
    };
    Some(Raw {
        flags,
        version,
        created,
        len,
        value: reader.take(stored)?,
    })
}

/// Checks a block and returns its end and a reader at its first entry.
fn open<'a>(start: &[u8], bytes: &'a [u8]) -> Option<(&'a [u8], Reader<'a>)> {
    let (crc, rest) = bytes.split_first_chunk::<4>()?;
    if checksum(start, rest) != u32::from_le_bytes(*crc) {
        return None;
    }
    let mut reader = Reader::new(rest);
    Some((reader.bytes()?, reader))
}

/// Reads a block; `None` when it is damaged.
pub(crate) fn decode(start: &[u8], bytes: &[u8]) -> Option<Block> {
    let (end, mut reader) = open(start, bytes)?;
    let (mut entries, mut key) = (Vec::new(), Vec::new());
    while !reader.is_empty() {
        let raw = next(&mut reader, &mut key)?;
        entries.push(raw.entry(key.clone())?);
    }
    Some(Block {
        end: end.to_vec(),
        entries,
    })
}

/// The answer of a block about one key.
pub(crate) enum Lookup {
    /// It has the key.
    Found(Entry),
    /// It covers the key and does not have it.
    Absent,
    /// It is damaged or ends before the key.
    Bad,
}

/// Looks up one key without decoding the others.
pub(crate) fn find(start: &[u8], bytes: &[u8], wanted: &[u8]) -> Lookup {
    let Some((end, mut reader)) = open(start, bytes) else {
        return Lookup::Bad;
    };
    if !end.is_empty() && wanted >= end {
        return Lookup::Bad;
    }
    let mut key = Vec::with_capacity(64);
    while !reader.is_empty() {
        let Some(raw) = next(&mut reader, &mut key) else {
            return Lookup::Bad;
        };
        match key.as_slice().cmp(wanted) {
            std::cmp::Ordering::Less => {}
            std::cmp::Ordering::Equal => {
                return raw.entry(key).map_or(Lookup::Bad, Lookup::Found);
            }
            std::cmp::Ordering::Greater => break,
        }
    }
    Lookup::Absent
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<Entry> {
        let entry = |key: &[u8], payload| {
            let (key, leased) = (key.to_vec(), key.len() == 3);
            Entry {
                key,
                version: 300,
                created: 7,
                leased,
                payload,
            }
        };
        vec![
            entry(b"aa", Payload::Inline(Arc::from(&b"one"[..]))),
            entry(
                b"aab",
                Payload::Large {
                    len: 1 << 20,
                    crc: 77,
                },
            ),
            entry(b"b", Payload::Inline(Arc::from(&b""[..]))),
        ]
    }

    #[test]
    fn a_block_comes_back_as_it_was() {
        let bytes = encode(b"a", b"c", &sample());
        let block = decode(b"a", &bytes).unwrap();
        assert_eq!((block.end.as_slice(), block.entries), (&b"c"[..], sample()));
        for entry in sample() {
            assert!(matches!(find(b"a", &bytes, &entry.key), Lookup::Found(e) if e == entry));
        }
        assert!(matches!(find(b"a", &bytes, b"ab"), Lookup::Absent));
    }

    #[test]
    fn every_flipped_byte_and_a_wrong_place_are_noticed() {
        let good = encode(b"a", b"c", &sample());
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 4;
            assert_eq!(decode(b"a", &bytes), None, "byte {at}");
        }
        assert_eq!(decode(b"b", &good), None);
        assert!(
            matches!(find(b"a", &good, b"c"), Lookup::Bad),
            "beyond its end"
        );
    }
}
