//! Live bytes of packs.
//!
//! Bytes are added by the commit that uses them. In a shared index they are subtracted later: a
//! fold or a purge notes in a list what it has freed, and any session drains the lists. So a sum
//! is never too small, and a pack is deleted late at worst.

use std::collections::BTreeMap;

use super::{Namespace, damaged};
use crate::Error;
use crate::extent::{PackBytes, PackId, SealedPack};
use crate::kv::{Compare, Counter, KeyRange, Outcome, Txn, Want};
use crate::schema::{decode_freed, decode_number, encode_freed, encode_number, keys};

/// Packs that one transaction is about at most.
const PACKS_AT_ONCE: usize = 50;
/// Lists that are read at a time.
const LISTS: usize = 100;

impl Namespace {
    /// Live bytes of all packs.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn packs(&self) -> Result<Vec<PackBytes>, Error> {
        let decode = |value: &[u8]| {
            if self.old_format {
                return decode_number(value);
            }
            let live = Counter::decode(value)?.sums[0];
            Some(u64::try_from(live).unwrap_or(0))
        };
        let pack_of = |key: &[u8]| keys::pack_of(key).or_else(|| keys::old::pack_of(key));
        let entry = |pack, bytes| PackBytes { pack, bytes };
        self.numbers(keys::packs(), pack_of, decode, entry)
    }

    /// Live bytes of one pack.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn live_bytes(&self, pack: PackId) -> Result<i64, Error> {
        let key = keys::pack(pack);
        let mut snapshot = self.kv.get_many(&[Want::Counter(key.clone())])?;
        match snapshot.found.pop().and_then(|mut pairs| pairs.pop()) {
            Some((_, found)) => {
                let counter = Counter::decode(&found.value).ok_or_else(|| damaged(&key))?;
                Ok(counter.sums[0])
            }
            None => Ok(0),
        }
    }

    /// Every sealed pack.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn sealed_packs(&self) -> Result<Vec<SealedPack>, Error> {
        let entry = |pack, directory| SealedPack { pack, directory };
        self.numbers(keys::all_sealed(), keys::sealed_of, decode_number, entry)
    }

    fn numbers<T>(
        &self,
        (start, end): KeyRange,
        pack_of: impl Fn(&[u8]) -> Option<PackId>,
        decode: impl Fn(&[u8]) -> Option<u64>,
        entry: impl Fn(PackId, u64) -> T,
    ) -> Result<Vec<T>, Error> {
        let mut packs = Vec::new();
        for (key, found) in self.kv.range(&start, &end, usize::MAX)? {
            let pack = pack_of(&key).ok_or_else(|| damaged(&key))?;
            let number = decode(&found.value).ok_or_else(|| damaged(&key))?;
            packs.push(entry(pack, number));
        }
        Ok(packs)
    }

    /// Notes packs that have been sealed durably.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn note_sealed(&self, packs: &[SealedPack]) -> Result<(), Error> {
        for packs in packs.chunks(PACKS_AT_ONCE) {
            self.transact(|transaction| {
                for &SealedPack { pack, directory } in packs {
                    let txn = transaction.txn();
                    txn.put(keys::sealed(pack), encode_number(directory));
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Condemns a pack without live bytes: its counter goes, and a tombstone stays until
    /// [`Namespace::forget_pack`]. The file may be deleted once that is durable.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn condemn_pack(&self, pack: PackId) -> Result<(), Error> {
        self.transact(|transaction| {
            let txn = transaction.txn();
            txn.drop_counter(keys::pack(pack));
            txn.delete(keys::sealed(pack));
            txn.put(keys::tombstone(pack), Vec::new());
            Ok(())
        })
    }

    /// Packs that were condemned and not forgotten.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn condemned_packs(&self) -> Result<Vec<PackId>, Error> {
        let (start, end) = keys::tombstones();
        let found = self.kv.range(&start, &end, usize::MAX)?;
        Ok(found
            .iter()
            .filter_map(|(key, _)| keys::tombstone_of(key))
            .collect())
    }

    /// Forgets a pack whose file has gone. This also works on a full device: it only removes.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn forget_pack(&self, pack: PackId) -> Result<(), Error> {
        self.transact(|transaction| {
            let txn = transaction.txn();
            txn.delete(keys::tombstone(pack));
            txn.drop_counter(keys::pack(pack));
            txn.delete(keys::sealed(pack));
            Ok(())
        })
    }

    /// Subtracts what the lists of freed bytes say, and returns the packs concerned.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn drain_freed(&self) -> Result<BTreeMap<PackId, u64>, Error> {
        let mut drained: BTreeMap<PackId, u64> = BTreeMap::new();
        let (mut start, end) = keys::all_freed();
        loop {
            let found = self.kv.range(&start, &end, LISTS)?;
            let Some((last, _)) = found.last() else {
                return Ok(drained);
            };
            start = last.clone();
            start.push(0);
            for (key, value) in found {
                let list = decode_freed(&value.value).ok_or_else(|| damaged(&key))?;
                self.drain(&key, value.version, list, &mut drained)?;
            }
        }
    }

    /// Drains one list, in several steps if it is long. Another session that drains the same list
    /// is in the way of each step, or this one is in its way.
    fn drain(
        &self,
        key: &[u8],
        mut version: u64,
        mut list: Vec<PackBytes>,
        drained: &mut BTreeMap<PackId, u64>,
    ) -> Result<(), Error> {
        while !list.is_empty() {
            let rest = list.split_off(list.len().min(PACKS_AT_ONCE));
            let mut txn = Txn::new();
            txn.compare(Compare::Exists(self.session_key.clone()));
            txn.compare(Compare::VersionIs(key.to_vec(), version));
            if rest.is_empty() {
                txn.delete(key.to_vec());
            } else {
                txn.put(key.to_vec(), encode_freed(&rest));
            }
            for PackBytes { pack, bytes } in &list {
                txn.add(keys::pack(*pack), Counter::of(-(*bytes as i64)));
            }
            match self.kv.commit(&txn)? {
                Outcome::Committed(at) => version = at,
                Outcome::Conflict => return Ok(()),
            }
            for PackBytes { pack, bytes } in list {
                *drained.entry(pack).or_default() += bytes;
            }
            list = rest;
        }
        Ok(())
    }
}
