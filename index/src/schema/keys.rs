//! Keys of the index.
//!
//! ```text
//! c ino:8 session:8 seq:8      commit record
//! d parent:8 hash:7 name       directory entry
//! h ino:8                      incompressible file: settling it was tried and not worth it
//! i ino:8                      inode
//! n name                       counters
//! o ino:8                      orphan: no name left, purged when no process has it open
//! p pack:8 slot:2              live bytes of a pack
//! q pack:8                     pack that is sealed: where its directory begins
//! r dir:8 slot:2               roll-up of everything below a directory
//! s session:8                  session, under its lease
//! t ino:8                      stored file: to be settled
//! x ino:8 name                 extended attribute
//! ```
//! Integers are big-endian, so that ranges follow their order. A `slot` separates writers that
//! must not share a value; the embedded engine uses slot 0 alone.

use twox_hash::XxHash3_64;

use super::Ino;
use crate::extent::PackId;
use crate::kv::prefix_end;

/// The slot that one node uses.
// single-node: several nodes need a slot each, and readers must add the slots up.
const SLOT: [u8; 2] = [0, 0];

/// Bits of a name hash that take part in a key and in a directory cookie.
const HASH_BITS: u32 = 56;

/// Half-open range of keys.
pub(crate) type KeyRange = (Vec<u8>, Vec<u8>);

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

/// A commit record.
#[must_use]
pub fn commit(ino: Ino, session: u64, seq: u64) -> Vec<u8> {
    tagged(
        b'c',
        &[
            &ino.to_be_bytes(),
            &session.to_be_bytes(),
            &seq.to_be_bytes(),
        ],
    )
}

/// All commit records of an inode.
pub(crate) fn commits(ino: Ino) -> KeyRange {
    below(tagged(b'c', &[&ino.to_be_bytes()]))
}

/// The inode number in a commit record's key.
#[must_use]
pub fn commit_of(key: &[u8]) -> Option<u64> {
    let rest = key.strip_prefix(b"c")?;
    rest.get(..8)?.try_into().ok().map(u64::from_be_bytes)
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
    tagged(b'p', &[&pack.0.to_be_bytes(), &SLOT])
}

/// Live bytes of all packs.
pub(crate) fn packs() -> KeyRange {
    below(vec![b'p'])
}

/// The pack in a pack key.
#[must_use]
pub fn pack_of(key: &[u8]) -> Option<PackId> {
    key.strip_prefix(b"p")?
        .get(..8)?
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

/// Roll-up of a directory.
#[must_use]
pub fn rollup(dir: Ino) -> Vec<u8> {
    tagged(b'r', &[&dir.to_be_bytes(), &SLOT])
}

/// A session.
#[must_use]
pub fn session(session: u64) -> Vec<u8> {
    tagged(b's', &[&session.to_be_bytes()])
}

/// Whether a key is that of a session.
#[must_use]
pub fn is_session(key: &[u8]) -> bool {
    key.first() == Some(&b's')
}

/// A counter.
#[must_use]
pub fn counter(name: &str) -> Vec<u8> {
    tagged(b'n', &[name.as_bytes()])
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
}
