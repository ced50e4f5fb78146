//! Keys of the index.
//!
//! ```text
//! d parent:8 hash:7 name       directory entry
//! e session:8 seq:8            bytes of packs that were freed, to be subtracted from `p`
//! h ino:8                      incompressible file: settling it was tried and not worth it
//! i ino:8                      inode
//! i ino:8 session:8 seq:8      commit record of a file
//! i ino:8 +                    totals of a directory, a counter
//! n name                       single values
//! o ino:8                      orphan: no name left, purged when no process has it open
//! p pack:8                     live bytes of a pack, a counter
//! q pack:8                     pack that is sealed: where its directory begins
//! s lease:8                    session, under its lease
//! t ino:8                      stored file: to be settled
//! u ino:8 session:8            orphan that a session has open, under its lease
//! v dir:8                      directory whose totals are to be passed on to the one above
//! x ino:8 name                 extended attribute
//! z pack:8                     pack that is being deleted
//! ```
//! Integers are big-endian, so that ranges follow their order. Everything that says what an inode
//! is lies under one prefix, so that one range shows it as of one commit.
//!
//! Format 2 had other keys for some of this, which [`old`] still knows.

use twox_hash::XxHash3_64;

use super::Ino;
use crate::extent::PackId;
use crate::kv::{KeyRange, Lease, prefix_end};

/// Bits of a name hash that take part in a key and in a directory cookie.
const HASH_BITS: u32 = 56;

/// Ends the key of a directory's totals.
const TOTALS: u8 = b'+';

fn tagged(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + parts.iter().map(|p| p.len()).sum::<usize>());
    key.push(tag);
    for part in parts {
        key.extend_from_slice(part);
    }
    key
}

fn below(prefix: Vec<u8>) -> KeyRange {
    let end = prefix_end(&prefix);
    (prefix, end)
}

/// An inode.
#[must_use]
pub fn inode(ino: Ino) -> Vec<u8> {
    tagged(b'i', &[&ino.to_be_bytes()])
}

/// The inode number in an inode key.
#[must_use]
pub fn inode_of(key: &[u8]) -> Option<u64> {
    match key {
        [b'i', rest @ ..] => rest.try_into().ok().map(u64::from_be_bytes),
        _ => None,
    }
}

/// Everything that says what an inode is: the inode, its commit records, its totals.
pub(crate) fn all_of(ino: Ino) -> KeyRange {
    below(inode(ino))
}

/// Totals of a directory.
#[must_use]
pub fn totals(dir: Ino) -> Vec<u8> {
    tagged(b'i', &[&dir.to_be_bytes(), &[TOTALS]])
}

/// The directory in the key of its totals.
#[must_use]
pub fn totals_of(key: &[u8]) -> Option<u64> {
    match key {
        [b'i', dir @ .., TOTALS] => dir.try_into().ok().map(u64::from_be_bytes),
        _ => None,
    }
}

/// Hash of a name, as directories order their entries.
#[must_use]
pub fn name_hash(name: &[u8]) -> u64 {
    // 0 stands for the beginning of a directory in cookies.
    (XxHash3_64::oneshot_with_seed(0x5348_414c_4546_5321, name) >> (64 - HASH_BITS)).max(1)
}

/// A directory entry.
#[must_use]
pub fn dentry(parent: Ino, name: &[u8]) -> Vec<u8> {
    let hash = name_hash(name).to_be_bytes();
    tagged(b'd', &[&parent.to_be_bytes(), &hash[1..], name])
}

/// Entries of a directory from a hash on.
pub(crate) fn dentries_from(parent: Ino, hash: u64) -> KeyRange {
    let start = tagged(b'd', &[&parent.to_be_bytes(), &hash.to_be_bytes()[1..]]);
    (start, prefix_end(&tagged(b'd', &[&parent.to_be_bytes()])))
}

/// All entries of a directory.
pub(crate) fn dentries(parent: Ino) -> KeyRange {
    below(tagged(b'd', &[&parent.to_be_bytes()]))
}

/// Parent, hash and name in a directory entry's key.
#[must_use]
pub fn dentry_of(key: &[u8]) -> Option<(u64, u64, &[u8])> {
    let rest = key.strip_prefix(b"d")?;
    let (parent, rest) = rest.split_at_checked(8)?;
    let (hash, name) = rest.split_at_checked(7)?;
    let mut wide = [0; 8];
    wide[1..].copy_from_slice(hash);
    Some((
        u64::from_be_bytes(parent.try_into().ok()?),
        u64::from_be_bytes(wide),
        name,
    ))
}

/// An extended attribute.
pub(crate) fn xattr(ino: Ino, name: &[u8]) -> Vec<u8> {
    tagged(b'x', &[&ino.to_be_bytes(), name])
}

/// All extended attributes of an inode.
pub(crate) fn xattrs(ino: Ino) -> KeyRange {
    below(tagged(b'x', &[&ino.to_be_bytes()]))
}

/// Extended attributes of an inode whose names begin with `prefix`.
pub(crate) fn xattrs_with(ino: Ino, prefix: &[u8]) -> KeyRange {
    below(tagged(b'x', &[&ino.to_be_bytes(), prefix]))
}

/// The name in an extended attribute's key.
pub(crate) fn xattr_of(key: &[u8]) -> Option<&[u8]> {
    key.get(9..)
}

/// Which commit record of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordId {
    /// The session that wrote it.
    pub session: u64,
    /// Its number in that session.
    pub seq: u64,
}

/// A commit record.
#[must_use]
pub fn record(ino: Ino, id: RecordId) -> Vec<u8> {
    tagged(
        b'i',
        &[
            &ino.to_be_bytes(),
            &id.session.to_be_bytes(),
            &id.seq.to_be_bytes(),
        ],
    )
}

/// All commit records of an inode; nothing else lies between them.
pub(crate) fn records(ino: Ino) -> KeyRange {
    let first = RecordId { session: 0, seq: 0 };
    // The totals lie behind every record of a session below 2^61.
    (record(ino, first), totals(ino))
}

/// The inode number and the rest in a commit record's key.
#[must_use]
pub fn record_of(key: &[u8]) -> Option<(Ino, RecordId)> {
    let rest = key.strip_prefix(b"i")?;
    let number = |at: usize| {
        let bytes = rest.get(at..at + 8)?.try_into().ok()?;
        Some(u64::from_be_bytes(bytes))
    };
    let id = RecordId {
        session: number(8)?,
        seq: number(16)?,
    };
    (rest.len() == 24).then_some((number(0)?, id))
}

/// A list of freed bytes.
pub(crate) fn freed(session: u64, seq: u64) -> Vec<u8> {
    tagged(b'e', &[&session.to_be_bytes(), &seq.to_be_bytes()])
}

/// Whether a key is that of a list of freed bytes.
#[must_use]
pub fn is_freed(key: &[u8]) -> bool {
    key.first() == Some(&b'e')
}

/// All lists of freed bytes.
pub(crate) fn all_freed() -> KeyRange {
    below(vec![b'e'])
}

/// An orphan that a session has open.
pub(crate) fn in_use(ino: Ino, session: u64) -> Vec<u8> {
    tagged(b'u', &[&ino.to_be_bytes(), &session.to_be_bytes()])
}

/// All sessions that have an orphan open.
pub(crate) fn uses(ino: Ino) -> KeyRange {
    below(tagged(b'u', &[&ino.to_be_bytes()]))
}

/// A directory whose totals are to be passed on.
pub(crate) fn unpassed(dir: Ino) -> Vec<u8> {
    tagged(b'v', &[&dir.to_be_bytes()])
}

/// All directories whose totals are to be passed on.
pub(crate) fn all_unpassed() -> KeyRange {
    below(vec![b'v'])
}

/// The directory in the key of one whose totals are to be passed on.
pub(crate) fn unpassed_of(key: &[u8]) -> Option<Ino> {
    let dir = key.strip_prefix(b"v")?.try_into().ok()?;
    Some(u64::from_be_bytes(dir))
}

/// A pack that is being deleted.
pub(crate) fn tombstone(pack: PackId) -> Vec<u8> {
    tagged(b'z', &[&pack.0.to_be_bytes()])
}

/// All packs that are being deleted.
pub(crate) fn tombstones() -> KeyRange {
    below(vec![b'z'])
}

/// The pack in the key of one that is being deleted.
pub(crate) fn tombstone_of(key: &[u8]) -> Option<PackId> {
    let pack = key.strip_prefix(b"z")?.try_into().ok()?;
    Some(PackId(u64::from_be_bytes(pack)))
}

/// An orphan.
#[must_use]
pub fn orphan(ino: Ino) -> Vec<u8> {
    tagged(b'o', &[&ino.to_be_bytes()])
}

/// All orphans.
pub(crate) fn orphans() -> KeyRange {
    below(vec![b'o'])
}

/// The inode number in an orphan's key.
#[must_use]
pub fn orphan_of(key: &[u8]) -> Option<u64> {
    key.strip_prefix(b"o")?
        .try_into()
        .ok()
        .map(u64::from_be_bytes)
}

/// An incompressible file.
#[must_use]
pub fn incompressible(ino: Ino) -> Vec<u8> {
    tagged(b'h', &[&ino.to_be_bytes()])
}

/// Incompressible files from an inode number on.
pub(crate) fn incompressible_from(ino: Ino) -> KeyRange {
    (incompressible(ino), prefix_end(b"h"))
}

/// The inode number in the key of an incompressible file.
#[must_use]
pub fn incompressible_of(key: &[u8]) -> Option<u64> {
    match key {
        [b'h', rest @ ..] => rest.try_into().ok().map(u64::from_be_bytes),
        _ => None,
    }
}

/// A stored file that waits to be settled.
#[must_use]
pub fn stored(ino: Ino) -> Vec<u8> {
    tagged(b't', &[&ino.to_be_bytes()])
}

/// Stored files from an inode number on.
pub(crate) fn stored_from(ino: Ino) -> KeyRange {
    (stored(ino), prefix_end(b"t"))
}

/// The inode number in the key of a stored file.
#[must_use]
pub fn stored_of(key: &[u8]) -> Option<u64> {
    key.strip_prefix(b"t")?
        .try_into()
        .ok()
        .map(u64::from_be_bytes)
}

/// Live bytes of a pack.
#[must_use]
pub fn pack(pack: PackId) -> Vec<u8> {
    tagged(b'p', &[&pack.0.to_be_bytes()])
}

/// Live bytes of all packs.
pub(crate) fn packs() -> KeyRange {
    below(vec![b'p'])
}

/// The pack in a pack key.
#[must_use]
pub fn pack_of(key: &[u8]) -> Option<PackId> {
    key.strip_prefix(b"p")?
        .try_into()
        .ok()
        .map(u64::from_be_bytes)
        .map(PackId)
}

/// A sealed pack.
pub(crate) fn sealed(pack: PackId) -> Vec<u8> {
    tagged(b'q', &[&pack.0.to_be_bytes()])
}

/// All sealed packs.
pub(crate) fn all_sealed() -> KeyRange {
    below(vec![b'q'])
}

/// The pack in the key of a sealed pack.
#[must_use]
pub fn sealed_of(key: &[u8]) -> Option<PackId> {
    key.strip_prefix(b"q")?
        .try_into()
        .ok()
        .map(u64::from_be_bytes)
        .map(PackId)
}

/// A session, by its lease.
pub(crate) fn session(lease: Lease) -> Vec<u8> {
    tagged(b's', &[&lease.0.to_be_bytes()])
}

/// All sessions.
pub(crate) fn sessions() -> KeyRange {
    below(vec![b's'])
}

/// Whether a key is that of a session.
#[must_use]
pub fn is_session(key: &[u8]) -> bool {
    key.first() == Some(&b's')
}

/// Whether a key is a counter.
#[must_use]
pub fn is_counter(key: &[u8]) -> bool {
    pack_of(key).is_some() || totals_of(key).is_some()
}

/// A single value.
#[must_use]
pub fn single(name: &str) -> Vec<u8> {
    tagged(b'n', &[name.as_bytes()])
}

/// Keys of format 2.
pub mod old {
    use super::{Ino, KeyRange, PackId, RecordId, below, tagged};

    fn number(key: &[u8], at: usize) -> Option<u64> {
        let bytes = key.get(at..at + 8)?.try_into().ok()?;
        Some(u64::from_be_bytes(bytes))
    }

    /// Totals of a directory: `r dir:8 slot:2`, the slot always 0.
    #[must_use]
    pub fn totals(dir: Ino) -> Vec<u8> {
        tagged(b'r', &[&dir.to_be_bytes(), &[0, 0]])
    }

    /// All keys of a tag that format 3 has moved elsewhere.
    pub(crate) fn all(tag: u8) -> KeyRange {
        below(vec![tag])
    }

    /// The directory in the key of its totals.
    #[must_use]
    pub fn totals_of(key: &[u8]) -> Option<Ino> {
        (key.first() == Some(&b'r') && key.len() == 11).then(|| number(key, 1))?
    }

    /// The pack in the key of its live bytes, `p pack:8 slot:2`.
    #[must_use]
    pub fn pack_of(key: &[u8]) -> Option<PackId> {
        (key.first() == Some(&b'p') && key.len() == 11).then(|| number(key, 1).map(PackId))?
    }

    /// The file and the rest in the key of a commit record, `c ino:8 session:8 seq:8`.
    #[must_use]
    pub fn record_of(key: &[u8]) -> Option<(Ino, RecordId)> {
        if key.first() != Some(&b'c') || key.len() != 25 {
            return None;
        }
        let id = RecordId {
            session: number(key, 9)?,
            seq: number(key, 17)?,
        };
        Some((number(key, 1)?, id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_range_holds_its_entries_and_no_others() {
        let (start, end) = dentries(7);
        for name in [&b"a"[..], b"\xff\xff", &[0xff; 255]] {
            let key = dentry(7, name);
            assert!(start <= key && key < end);
            assert_eq!(dentry_of(&key), Some((7, name_hash(name), name)));
            assert!(dentry(8, name) >= end && dentry(6, name) < start);
            let (from, _) = dentries_from(7, name_hash(name));
            assert!(from <= key);
        }
    }

    #[test]
    fn one_range_holds_everything_about_an_inode() {
        let id = RecordId {
            session: 1 << 40,
            seq: u64::MAX,
        };
        let (start, end) = all_of(7);
        for key in [inode(7), record(7, id), totals(7)] {
            assert!(start <= key && key < end);
        }
        assert!(inode(8) >= end && totals(6) < start);
        let (start, end) = records(7);
        assert!(start <= record(7, id) && record(7, id) < end);
        assert!(inode(7) < start && totals(7) >= end);
        assert_eq!(record_of(&record(7, id)), Some((7, id)));
        assert_eq!(totals_of(&totals(7)), Some(7));
        assert_eq!(inode_of(&totals(7)), None);
        assert_eq!(record_of(&totals(7)), None);
    }
}
