//! What a commit did, spelled out per key, and the bytes of it.
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

use crate::kv::{Version, Versioned};
use crate::wire::{Reader, put_bytes, put_varint};

const PUT: u8 = 1;
const LEASED: u8 = 2;

/// What became of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The key.
    pub key: Vec<u8>,
    /// Its value from this commit on; `None` when it was removed.
    pub value: Option<Versioned>,
    /// Whether it goes away with the lease of the engine.
    pub leased: bool,
}

/// A committed transaction: each key once, in order, ranges expanded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Its number.
    pub version: Version,
    /// What it changed.
    pub changes: Vec<Change>,
}

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
