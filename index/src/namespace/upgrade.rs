//! From format 2 to format 3, and reading format 2 as it is.
//!
//! Format 2 kept commit records, totals and live bytes under other keys. An upgrade moves them in
//! small transactions, each of which takes old keys away and puts what they become, so that it can
//! be interrupted anywhere and simply goes on: what is left to do is what has an old key.

use std::collections::BTreeMap;

use super::contents::Contents;
use super::{Namespace, damaged};
use crate::Error;
use crate::kv::{Counter, Found, Kv, Txn, Versioned};
use crate::schema::{Ino, Inode, Rollup, Time, decode_number, encode_number, keys, totals};

/// Old keys, and bytes, that one transaction takes, about.
const STEP: usize = 256;
const STEP_BYTES: usize = 8 << 20;

impl Namespace {
    /// Moves everything that format 2 kept elsewhere to the keys of format 3. No session may have
    /// begun. Returns how many keys were moved.
    ///
    /// # Errors
    /// When the engine fails or a record is damaged.
    pub fn upgrade(kv: &dyn Kv) -> Result<u64, Error> {
        let mut moved = 0;
        for tag in [b'c', b'r', b'p'] {
            let (mut start, end) = keys::old::all(tag);
            loop {
                let found = kv.range(&start, &end, STEP)?;
                let Some((last, _)) = found.last() else { break };
                start = last.clone();
                start.push(0);
                let mut txn = Txn::new();
                for (key, value) in &found {
                    if move_key(kv, &mut txn, key, value)? {
                        moved += 1;
                    }
                    if txn.bytes() > STEP_BYTES {
                        kv.commit(&std::mem::take(&mut txn))?;
                    }
                }
                kv.commit(&txn)?;
            }
        }
        // Sessions and inodes are numbered by commits now.
        let mut txn = Txn::new();
        let last = keys::single("session");
        if let Some(found) = kv.get(&last)? {
            let session = decode_number(&found.value).ok_or_else(|| damaged(&last))?;
            let floor = encode_number(old_sequences(session));
            txn.put(keys::single(SEQUENCE), floor);
        }
        txn.delete(last);
        txn.delete(keys::single("ino"));
        kv.commit(&txn)?;
        kv.sync(kv.version())?;
        Ok(moved)
    }

    /// What an older format has numbered frames up to.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn sequence_floor(&self) -> Result<u64, Error> {
        let key = keys::single(SEQUENCE);
        match self.kv.get(&key)? {
            Some(found) => decode_number(&found.value).ok_or_else(|| damaged(&key)),
            None => Ok(0),
        }
    }

    /// As [`Namespace::contents`], from the keys of format 2.
    pub(super) fn old_contents(&self, ino: Ino) -> Result<Contents, Error> {
        let key = keys::inode(ino);
        let Some(inode) = self.kv.get(&key)? else {
            return Err(Error::NotFound);
        };
        let (mut start, mut end) = keys::old::all(b'c');
        start.extend_from_slice(&ino.to_be_bytes());
        end.clear();
        end.extend_from_slice(&crate::kv::prefix_end(&start));
        let mut found: Found = vec![(key, inode)];
        for (key, value) in self.kv.range(&start, &end, usize::MAX)? {
            let (ino, id) = keys::old::record_of(&key).ok_or_else(|| damaged(&key))?;
            found.push((keys::record(ino, id), value));
        }
        Contents::parse(ino, self.kv.version(), found)
    }

    /// As [`Namespace::rollup`], from the keys of format 2.
    pub(super) fn old_rollup(&self, dir: Ino) -> Result<Rollup, Error> {
        let key = keys::old::totals(dir);
        match self.kv.get(&key)? {
            Some(found) => Rollup::decode_old(&found.value).ok_or_else(|| damaged(&key)),
            None => Ok(Rollup::default()),
        }
    }
}

/// The single value that says what an older format has numbered frames up to.
pub const SEQUENCE: &str = "sequence";

/// What the frames of format 2 are numbered up to, after a session.
#[must_use]
pub fn old_sequences(last_session: u64) -> u64 {
    (last_session + 1) << 40
}

/// Moves one pair; `false` for a key that is none of format 2.
fn move_key(kv: &dyn Kv, txn: &mut Txn, key: &[u8], value: &Versioned) -> Result<bool, Error> {
    let broken = || damaged(key);
    if let Some((ino, id)) = keys::old::record_of(key) {
        txn.put(keys::record(ino, id), value.value.to_vec());
    } else if let Some(dir) = keys::old::totals_of(key) {
        let rollup = Rollup::decode_old(&value.value).ok_or_else(broken)?;
        let inode = kv.get(&keys::inode(dir))?;
        let inode = inode.and_then(|found| Inode::decode(dir, &found.value));
        let subdirs = inode.map_or(0, |inode| i64::from(inode.nlink) - 2);
        let mut counter = rollup.as_delta().counter();
        // Its times stay those of the inode until a name changes.
        counter = counter.plus(&Counter {
            latest: i64::MIN,
            ..totals::touched(subdirs.max(0), Time::default())
        });
        txn.add(keys::totals(dir), counter);
    } else if let Some(pack) = keys::old::pack_of(key) {
        let live = decode_number(&value.value).ok_or_else(broken)?;
        txn.add(keys::pack(pack), Counter::of(live as i64));
    } else {
        return Ok(false);
    }
    txn.delete(key.to_vec());
    Ok(true)
}

/// What the keys of format 2 in a list of pairs become.
#[must_use]
pub fn upgraded(pairs: BTreeMap<Vec<u8>, Versioned>) -> BTreeMap<Vec<u8>, Versioned> {
    pairs
        .into_iter()
        .map(|(key, value)| match keys::old::record_of(&key) {
            Some((ino, id)) => (keys::record(ino, id), value),
            None => (key, value),
        })
        .collect()
}
