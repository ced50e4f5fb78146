//! The bytes of a commit: its changes, key by key.
//!
//! ```text
//! body of a commit                          one change
//! varint  number of changes                 u8      1 = put, 2 = under a lease (bits)
//! changes, in key order                     varint  length of key, then the key
//!                                           for a put:
//!                                           varint  version - created
//!                                           varint  length of value, then the value
//! ```

use std::sync::Arc;

use super::{Reader, put_bytes, put_varint};
use crate::Error;
use crate::kv::{Change, Commit, Version, Versioned};

const PUT: u8 = 1;
const LEASED: u8 = 2;

impl Commit {
    /// The changes as bytes, without the version.
    pub(crate) fn encode_body(&self, out: &mut Vec<u8>) {
        put_varint(out, self.changes.len() as u64);
        for change in &self.changes {
            match &change.value {
                Some(value) => {
                    out.push(PUT | if change.leased { LEASED } else { 0 });
                    put_bytes(out, &change.key);
                    put_varint(out, self.version.wrapping_sub(value.created));
                    put_bytes(out, &value.value);
                }
                None => {
                    out.push(0);
                    put_bytes(out, &change.key);
                }
            }
        }
    }

    /// Reads what [`Commit::encode_body`] wrote.
    pub(crate) fn decode_body(version: Version, body: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(body);
        let count = reader.varint()?;
        let mut changes = Vec::new();
        for _ in 0..count {
            let kind = reader.byte()?;
            let key = reader.bytes()?.to_vec();
            let value = match kind {
                0 => None,
                k if k & PUT != 0 && k & !(PUT | LEASED) == 0 => {
                    let created = version.wrapping_sub(reader.varint()?);
                    let value = Arc::from(reader.bytes()?);
                    Some(Versioned {
                        value,
                        version,
                        created,
                    })
                }
                _ => return None,
            };
            changes.push(Change {
                key,
                value,
                leased: kind & LEASED != 0,
            });
        }
        reader.is_empty().then_some(Self { version, changes })
    }
}

/// A commit as bytes that can be kept elsewhere: `varint version, body, crc32c` (little-endian,
/// over everything before it).
#[must_use]
pub fn encode_commit(commit: &Commit) -> Vec<u8> {
    let mut out = Vec::new();
    put_varint(&mut out, commit.version);
    commit.encode_body(&mut out);
    let crc = crc32c::crc32c(&out);
    out.extend_from_slice(&crc.to_le_bytes());
    out
}

/// Reads what [`encode_commit`] wrote.
///
/// # Errors
/// [`Error::Corrupt`] for anything else.
pub fn decode_commit(bytes: &[u8]) -> Result<Commit, Error> {
    let corrupt = |detail: &str| Error::Corrupt {
        what: "commit".into(),
        detail: detail.into(),
    };
    let (rest, crc) = bytes
        .split_last_chunk::<4>()
        .ok_or_else(|| corrupt("too short"))?;
    let (expected, found) = (u32::from_le_bytes(*crc), crc32c::crc32c(rest));
    if expected != found {
        let detail = format!("checksum {found:08x}, expected {expected:08x}");
        return Err(corrupt(&detail));
    }
    let version = Reader::new(rest)
        .varint()
        .ok_or_else(|| corrupt("no version"))?;
    // A varint ends with the first byte below 0x80.
    let body = rest
        .iter()
        .position(|byte| *byte < 0x80)
        .map_or(&[][..], |at| &rest[at + 1..]);
    Commit::decode_body(version, body).ok_or_else(|| corrupt("changes do not decode"))
}
