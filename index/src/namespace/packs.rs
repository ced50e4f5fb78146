//! What the index knows of packs.

use super::{Namespace, damaged};
use crate::Error;
use crate::extent::PackId;
use crate::schema::{decode_number, encode_number, keys};

impl Namespace {
    /// Live bytes of every pack.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn packs(&self) -> Result<Vec<(PackId, u64)>, Error> {
        self.numbers(keys::packs(), keys::pack_of)
    }

    /// Where the directory of every sealed pack begins.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn sealed_packs(&self) -> Result<Vec<(PackId, u64)>, Error> {
        self.numbers(keys::all_sealed(), keys::sealed_of)
    }

    fn numbers(
        &self,
        (start, end): keys::KeyRange,
        pack_of: impl Fn(&[u8]) -> Option<PackId>,
    ) -> Result<Vec<(PackId, u64)>, Error> {
        let mut packs = Vec::new();
        for (key, found) in self.kv.range(&start, &end, usize::MAX)? {
            let pack = pack_of(&key).ok_or_else(|| damaged(&key))?;
            packs.push((
                pack,
                decode_number(&found.value).ok_or_else(|| damaged(&key))?,
            ));
        }
        Ok(packs)
    }

    /// Notes packs that have been sealed durably, each with the place of its directory.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn note_sealed(&self, packs: &[(PackId, u64)]) -> Result<(), Error> {
        self.transact(|transaction| {
            for &(pack, directory) in packs {
                let txn = transaction.txn();
                txn.put(keys::sealed(pack), encode_number(directory));
            }
            Ok(())
        })
    }

    /// Forgets a pack that has been deleted.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn forget_pack(&self, pack: PackId) -> Result<(), Error> {
        self.transact(|transaction| {
            let txn = transaction.txn();
            txn.delete(keys::pack(pack));
            txn.delete(keys::sealed(pack));
            Ok(())
        })
    }
}
