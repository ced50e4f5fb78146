//! Directory listings in an order that insertions and deletions do not disturb.
//!
//! Entries are ordered by the hash of their name. A cookie is the hash and the number of entries of
//! that hash already seen, so it stays valid whatever is added or removed.

use super::{Contents, Namespace, contents, damaged};
use crate::Error;
use crate::kv::{Found, Want};
use crate::schema::{Dentry, Ino, Inode, S_IFDIR, keys};

/// Bits of a cookie that count entries with the same hash.
const TIE_BITS: u32 = 7;
const TIE_MASK: u64 = (1 << TIE_BITS) - 1;

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The name.
    pub name: Vec<u8>,
    /// Its inode.
    pub ino: Ino,
    /// File type bits.
    pub kind: u32,
    /// Where to continue after this entry.
    pub cookie: u64,
}

impl Namespace {
    /// The inodes of listed entries, all as of one commit; `None` for those that are gone.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn inodes(&self, entries: &[DirEntry]) -> Result<Vec<Option<Inode>>, Error> {
        if self.old_format {
            let inode = |entry: &DirEntry| match self.inode(entry.ino) {
                Ok(inode) => Ok(Some(inode)),
                Err(Error::NotFound) => Ok(None),
                Err(error) => Err(error),
            };
            return entries.iter().map(inode).collect();
        }
        let wants: Vec<Want> = entries
            .iter()
            .map(|entry| {
                // A directory has its totals beside it; a file of its own index nothing.
                if self.shared || entry.kind == S_IFDIR {
                    contents::want(entry.ino)
                } else {
                    Want::Key(keys::inode(entry.ino))
                }
            })
            .collect();
        let snapshot = self.kv().get_many(&wants)?;
        let inode = |(entry, found): (&DirEntry, Found)| match Contents::parse(
            entry.ino,
            snapshot.version,
            found,
        ) {
            Ok(contents) => Ok(Some(contents.current())),
            Err(Error::NotFound) => Ok(None),
            Err(error) => Err(error),
        };
        entries.iter().zip(snapshot.found).map(inode).collect()
    }

    /// At most `limit` entries after a cookie; 0 begins. Cookies are never below 128.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn readdir(&self, dir: Ino, cookie: u64, limit: usize) -> Result<Vec<DirEntry>, Error> {
        let (from_hash, mut skip) = (cookie >> TIE_BITS, cookie & TIE_MASK);
        let (start, end) = keys::dentries_from(dir, from_hash);
        let found = self
            .kv()
            .range(&start, &end, limit.saturating_add(skip as usize))?;
        let mut entries = Vec::with_capacity(found.len());
        let (mut hash, mut tie) = (from_hash, 0);
        for (key, value) in &found {
            let (_, entry_hash, name) = keys::dentry_of(key).ok_or_else(|| damaged(key))?;
            if entry_hash != hash {
                (hash, tie, skip) = (entry_hash, 0, 0);
            }
            tie = (tie + 1).min(TIE_MASK);
            if skip > 0 {
                skip -= 1;
                continue;
            }
            let dentry = Dentry::decode(&value.value).ok_or_else(|| damaged(key))?;
            entries.push(DirEntry {
                name: name.to_vec(),
                ino: dentry.ino,
                kind: dentry.kind,
                cookie: hash << TIE_BITS | tie,
            });
        }
        Ok(entries)
    }
}
