//! Numbers that no other session hands out: of sessions, inodes and records.
//!
//! A session is numbered by the commit that began it, and a block of inode numbers by the commit
//! that took it. No two commits have the same number, so there is no counter to fight for. A block
//! in which there are inodes is left alone: an index that was rebuilt, or restored from a copy, may
//! have numbered other commits before.

use std::sync::atomic::Ordering;

use super::Namespace;
use crate::Error;
use crate::kv::{Compare, Outcome, Txn};
use crate::schema::{RecordId, encode_number, keys};

/// Bits of an inode number below the number of its block.
pub const BLOCK_BITS: u32 = 16;

/// Inode numbers that this session has taken and not handed out.
#[derive(Debug, Default)]
pub(super) struct InoBlock {
    next: u64,
    end: u64,
}

impl InoBlock {
    /// All numbers of the block that a commit has taken.
    pub(super) fn new(block: u64) -> Self {
        Self {
            next: block << BLOCK_BITS,
            end: (block + 1) << BLOCK_BITS,
        }
    }
}

impl Namespace {
    /// An inode number that was never used.
    pub(super) fn new_ino(&self) -> Result<u64, Error> {
        let mut block = self.inos.lock();
        while block.next >= block.end {
            let taken = self.take_block()?;
            if self.is_free(taken)? {
                *block = InoBlock::new(taken);
            }
        }
        block.next += 1;
        Ok(block.next - 1)
    }

    /// Whether no inode has a number of a block.
    pub(super) fn is_free(&self, block: u64) -> Result<bool, Error> {
        let InoBlock { next, end } = InoBlock::new(block);
        let found = self.kv.range(&keys::inode(next), &keys::inode(end), 1)?;
        Ok(found.is_empty())
    }

    /// A commit that does nothing but be numbered.
    fn take_block(&self) -> Result<u64, Error> {
        let mut txn = Txn::new();
        txn.compare(Compare::Exists(self.session_key.clone()));
        txn.ops.push(crate::kv::Op::Put {
            key: self.session_key.clone(),
            value: encode_number(self.looked.load(Ordering::Relaxed)),
            lease: Some(self.kv.lease()),
        });
        match self.kv.commit(&txn)? {
            // If a crash loses this commit, it loses every commit that uses the numbers as well.
            Outcome::Committed(version) => Ok(version),
            Outcome::Conflict => Err(Error::SessionEnded("its key is gone".to_owned())),
        }
    }

    /// An id for a commit record of this session.
    pub(super) fn new_record(&self) -> RecordId {
        RecordId {
            session: self.session,
            seq: self.next_seq.fetch_add(1, Ordering::Relaxed) + 1,
        }
    }
}
