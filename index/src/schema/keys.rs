//! Keys of the index.
//!
//! ```text
//! c ino:8 session:8 seq:8      commit record
//! d parent:8 hash:7 name       directory entry
//! h ino:8                      hard file: not worth settling when it was tried
//! i ino:8                      inode
//! n name                       counters
//! o ino:8                      orphan: no name left, to be freed when nobody has it open
//! p pack:8 slot:2              live bytes of a pack
//! q pack:8                     pack that is sealed: where its directory begins
//! r dir:8 slot:2               roll-up of everything below a directory
//! s session:8                  session, under its lease
//! t ino:8                      loose file: to be settled
//! x ino:8 name                 extended attribute
//! ```
//! Integers are big-endian, so that ranges follow their order. A `slot` separates writers that
//! must not share a value; the embedded engine uses slot 0 alone.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::kv::prefix_end;

/// Slot of the embedded engine.
const SLOT: [u8; 2] = [0, 0];

/// Bits of a name hash that take part in a key and in a directory cookie.
const HASH_BITS: u32 = 56;

/// Half-open range of keys.
pub type KeyRange = (Vec<u8>, Vec<u8>);

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
pub fn inode(ino: u64) -> Vec<u8> {
    tagged(b'i', &[&ino.to_be_bytes()])
}

/// All inodes.
#[must_use]
pub fn inodes() -> KeyRange {
    below(vec![b'i'])
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
    (xxh3_64_with_seed(name, 0x5348_414c_4546_5321) >> (64 - HASH_BITS)).max(1)
}

/// A directory entry.
#[must_use]
pub fn dentry(parent: u64, name: &[u8]) -> Vec<u8> {
    let hash = name_hash(name).to_be_bytes();
    tagged(b'd', &[&parent.to_be_bytes(), &hash[1..], name])
}

/// Entries of a directory from a hash on.
#[must_use]
pub fn dentries_from(parent: u64, hash: u64) -> KeyRange {
    let start = tagged(b'd', &[&parent.to_be_bytes(), &hash.to_be_bytes()[1..]]);
    (start, prefix_end(&tagged(b'd', &[&parent.to_be_bytes()])))
}

/// All entries of a directory.
#[must_use]
pub fn dentries(parent: u64) -> KeyRange {
    below(tagged(b'd', &[&parent.to_be_bytes()]))
}

/// All directory entries of the store.
#[must_use]
pub fn all_dentries() -> KeyRange {
    below(vec![b'd'])
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
#[must_use]
pub fn xattr(ino: u64, name: &[u8]) -> Vec<u8> {
    tagged(b'x', &[&ino.to_be_bytes(), name])
}

/// All extended attributes of an inode.
#[must_use]
pub fn xattrs(ino: u64) -> KeyRange {
    below(tagged(b'x', &[&ino.to_be_bytes()]))
}

/// Extended attributes of an inode whose names begin with `prefix`.
#[must_use]
pub fn xattrs_with(ino: u64, prefix: &[u8]) -> KeyRange {
    below(tagged(b'x', &[&ino.to_be_bytes(), prefix]))
}

/// The name in an extended attribute's key.
#[must_use]
pub fn xattr_of(key: &[u8]) -> Option<&[u8]> {
    key.get(9..)
}

/// A commit record.
#[must_use]
pub fn commit(ino: u64, session: u64, seq: u64) -> Vec<u8> {
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
#[must_use]
pub fn commits(ino: u64) -> KeyRange {
    below(tagged(b'c', &[&ino.to_be_bytes()]))
}

/// All commit records of the store.
#[must_use]
pub fn all_commits() -> KeyRange {
    below(vec![b'c'])
}

/// The inode number in a commit record's key.
#[must_use]
pub fn commit_of(key: &[u8]) -> Option<u64> {
    let rest = key.strip_prefix(b"c")?;
    rest.get(..8)?.try_into().ok().map(u64::from_be_bytes)
}

/// An orphan.
#[must_use]
pub fn orphan(ino: u64) -> Vec<u8> {
    tagged(b'o', &[&ino.to_be_bytes()])
}

/// All orphans.
#[must_use]
pub fn orphans() -> KeyRange {
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

/// A hard file.
#[must_use]
pub fn hard(ino: u64) -> Vec<u8> {
    tagged(b'h', &[&ino.to_be_bytes()])
}

/// Hard files from an inode number on.
#[must_use]
pub fn hard_from(ino: u64) -> KeyRange {
    (hard(ino), prefix_end(b"h"))
}

/// The inode number in a hard file's key.
#[must_use]
pub fn hard_of(key: &[u8]) -> Option<u64> {
    match key {
        [b'h', rest @ ..] => rest.try_into().ok().map(u64::from_be_bytes),
        _ => None,
    }
}

/// A loose file.
#[must_use]
pub fn loose(ino: u64) -> Vec<u8> {
    tagged(b't', &[&ino.to_be_bytes()])
}

/// Loose files from an inode on.
#[must_use]
pub fn loose_from(ino: u64) -> KeyRange {
    (loose(ino), prefix_end(b"t"))
}

/// The inode number in a loose file's key.
#[must_use]
pub fn loose_of(key: &[u8]) -> Option<u64> {
    key.strip_prefix(b"t")?
        .try_into()
        .ok()
        .map(u64::from_be_bytes)
}

/// Live bytes of a pack.
#[must_use]
pub fn pack(pack: u64) -> Vec<u8> {
    tagged(b'p', &[&pack.to_be_bytes(), &SLOT])
}

/// Live bytes of all packs.
#[must_use]
pub fn packs() -> KeyRange {
    below(vec![b'p'])
}

/// The pack in a pack key.
#[must_use]
pub fn pack_of(key: &[u8]) -> Option<u64> {
    key.strip_prefix(b"p")?
        .get(..8)?
        .try_into()
        .ok()
        .map(u64::from_be_bytes)
}

/// A sealed pack.
#[must_use]
pub fn sealed(pack: u64) -> Vec<u8> {
    tagged(b'q', &[&pack.to_be_bytes()])
}

/// All sealed packs.
#[must_use]
pub fn all_sealed() -> KeyRange {
    below(vec![b'q'])
}

/// The pack in the key of a sealed pack.
#[must_use]
pub fn sealed_of(key: &[u8]) -> Option<u64> {
    key.strip_prefix(b"q")?
        .try_into()
        .ok()
        .map(u64::from_be_bytes)
}

/// Roll-up of a directory.
#[must_use]
pub fn rollup(dir: u64) -> Vec<u8> {
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
