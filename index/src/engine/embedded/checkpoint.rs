//! The checkpoint file: how far the base is complete, and which instance of it.
//!
//! ```text
//! offset size   index/checkpoint
//!      0    8  magic "SHALECKP"
//!      8    4  format version: 1
//!     12    4  crc32c of bytes 16 to the end
//!     16    8  version up to which the base has everything
//!     24    8  id of the base
//!     32       varint number of leased keys at that version, then each as varint length, bytes
//! ```

use std::collections::BTreeSet;

use shale_backing::Backing;

use super::paths;
use crate::Error;
use crate::encoding::{Reader, put_bytes, put_varint};
use crate::kv::Version;

const MAGIC: [u8; 8] = *b"SHALECKP";
const FORMAT: u32 = 1;
const HEADER: usize = 32;

/// The contents of the checkpoint file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    /// The base has every commit up to here.
    pub(crate) version: Version,
    /// The base that has them.
    pub(crate) base: u64,
    /// Keys that were under a lease then.
    pub(crate) leased: BTreeSet<Vec<u8>>,
}

impl Checkpoint {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; HEADER];
        out[..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        out[16..24].copy_from_slice(&self.version.to_le_bytes());
        out[24..32].copy_from_slice(&self.base.to_le_bytes());
        put_varint(&mut out, self.leased.len() as u64);
        for key in &self.leased {
            put_bytes(&mut out, key);
        }
        let crc = crc32c::crc32c(&out[16..]);
        out[12..16].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// `None` when the bytes are damaged.
    fn decode(bytes: &[u8]) -> Option<Result<Self, u32>> {
        let (header, rest) = bytes.split_first_chunk::<HEADER>()?;
        let u32_at = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| header[at + i]));
        let u64_at = |at| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        if header[..8] != MAGIC {
            return None;
        }
        if u32_at(8) != FORMAT {
            return Some(Err(u32_at(8)));
        }
        if crc32c::crc32c(&bytes[16..]) != u32_at(12) {
            return None;
        }
        if u64_at(16) == Version::MAX {
            return None;
        }
        let mut reader = Reader::new(rest);
        let mut leased = BTreeSet::new();
        for _ in 0..reader.varint()? {
            leased.insert(reader.bytes()?.to_vec());
        }
        Some(Ok(Self {
            version: u64_at(16),
            base: u64_at(24),
            leased,
        }))
    }

    /// Reads the checkpoint. A missing or damaged one is only a reason to rebuild the base; the
    /// reason is the error inside.
    pub(crate) fn load(backing: &dyn Backing) -> Result<Result<Self, String>, Error> {
        let path = paths::path("checkpoint");
        let Some(bytes) = paths::read(backing, &path)? else {
            return Ok(Err("there is no checkpoint".into()));
        };
        match Self::decode(&bytes) {
            Some(Ok(checkpoint)) => Ok(Ok(checkpoint)),
            // Written by a newer program: the journal will report it if it matters.
            Some(Err(found)) => Ok(Err(format!("the checkpoint has format version {found}"))),
            None => Ok(Err("the checkpoint is damaged".into())),
        }
    }

    /// Makes it the current one.
    pub(crate) fn store(&self, backing: &dyn Backing) -> Result<(), Error> {
        paths::replace(backing, &paths::path("checkpoint"), &self.encode())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_byte_of_a_checkpoint_is_noticed() {
        let leased = BTreeSet::from([b"k1".to_vec(), b"k2".to_vec()]);
        let checkpoint = Checkpoint {
            version: 9,
            base: 77,
            leased,
        };
        let good = checkpoint.encode();
        assert_eq!(Checkpoint::decode(&good), Some(Ok(checkpoint)));
        for at in 0..good.len() {
            let mut bytes = good.clone();
            bytes[at] ^= 1;
            assert!(
                !matches!(Checkpoint::decode(&bytes), Some(Ok(_))),
                "byte {at}"
            );
            assert_eq!(Checkpoint::decode(&good[..at]), None, "cut at {at}");
        }
    }
}
