//! What the counters of an index should be, by counting.

use std::collections::{BTreeMap, HashMap, HashSet};

use shale_index::ROOT;
use shale_index::extent::{Extent, PackId};
use shale_index::schema::{CommitRecord, Delta, Dentry, Inode, Rollup, decode_number, keys};

use crate::Error;
use crate::frame::Frames;
use crate::map::{FileMap, Visited};

/// Everything in an index, decoded, and what is wrong with it by itself.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) inodes: BTreeMap<u64, Inode>,
    pub(super) dentries: Vec<(u64, Box<[u8]>, Dentry)>,
    pub(super) records: HashMap<u64, Vec<(u64, CommitRecord)>>,
    pub(super) orphans: HashSet<u64>,
    pub(super) stored: HashSet<u64>,
    pub(super) incompressible: HashSet<u64>,
    pub(super) rollups: BTreeMap<u64, Rollup>,
    pub(super) packs: BTreeMap<PackId, u64>,
    pub(super) sealed: BTreeMap<PackId, u64>,
    pub(super) undecodable: Vec<String>,
    /// Of each inode the place of its first name among the dentries.
    names: HashMap<u64, usize>,
}

impl Tally {
    /// Takes one pair of an index.
    pub(super) fn take(&mut self, key: &[u8], value: &[u8], version: u64) {
        if self.try_take(key, value, version).is_none() {
            self.undecodable.push(format!(
                "index record {} does not decode",
                key.escape_ascii()
            ));
        }
    }

    fn try_take(&mut self, key: &[u8], value: &[u8], version: u64) -> Option<()> {
        match key.first()? {
            b'i' => {
                let ino = keys::inode_of(key)?;
                self.inodes.insert(ino, Inode::decode(ino, value)?);
            }
            b'd' => {
                let (parent, _, name) = keys::dentry_of(key)?;
                let dentry = Dentry::decode(value)?;
                self.names.entry(dentry.ino).or_insert(self.dentries.len());
                self.dentries.push((parent, name.into(), dentry));
            }
            b'c' => {
                let record = CommitRecord::decode(value)?;
                self.records
                    .entry(keys::commit_of(key)?)
                    .or_default()
                    .push((version, record));
            }
            b'o' => {
                self.orphans.insert(keys::orphan_of(key)?);
            }
            b'h' => {
                self.incompressible.insert(keys::incompressible_of(key)?);
            }
            b't' => {
                self.stored.insert(keys::stored_of(key)?);
            }
            b'r' => {
                let dir = key.get(1..9)?.try_into().ok().map(u64::from_be_bytes)?;
                self.rollups.insert(dir, Rollup::decode(value)?);
            }
            b'p' => {
                self.packs
                    .insert(keys::pack_of(key)?, decode_number(value)?);
            }
            b'q' => {
                self.sealed
                    .insert(keys::sealed_of(key)?, decode_number(value)?);
            }
            _ => {}
        }
        Some(())
    }

    /// The path of an inode, as far as it has a name.
    pub(super) fn path(&self, ino: u64) -> Option<String> {
        let mut parts = Vec::new();
        let mut at = ino;
        while at != ROOT {
            let (parent, name, _) = &self.dentries[*self.names.get(&at)?];
            parts.push(String::from_utf8_lossy(name).into_owned());
            at = *parent;
            if parts.len() > 4096 {
                return None;
            }
        }
        parts.reverse();
        Some(format!("/{}", parts.join("/")))
    }

    pub(super) fn map(&self, frames: &Frames, inode: &Inode) -> Result<FileMap, Error> {
        let mut records = self.records.get(&inode.ino).cloned().unwrap_or_default();
        records.sort_by_key(|(version, _)| *version);
        FileMap::load(
            frames,
            inode,
            records.into_iter().map(|(_, record)| record).collect(),
        )
    }

    /// Extents and map segments of a file.
    pub(super) fn visit(
        &self,
        frames: &Frames,
        inode: &Inode,
        mut visit: impl FnMut(Visited),
    ) -> Result<u64, Error> {
        let mut stored = 0;
        self.map(frames, inode)?.visit(frames, |visited| {
            if let Visited::Extent(extent) = &visited {
                stored += Extent::stored(extent);
            }
            visit(visited);
        })?;
        Ok(stored)
    }

    /// The totals that every directory should have.
    pub(super) fn expected_rollups(&self) -> BTreeMap<u64, Rollup> {
        let mut totals: BTreeMap<u64, Rollup> = BTreeMap::new();
        for inode in self.inodes.values() {
            if inode.ino == ROOT || inode.nlink == 0 {
                continue;
            }
            let delta = if inode.is_dir() {
                Delta {
                    dirs: 1,
                    ..Delta::default()
                }
            } else {
                let raw = if inode.is_file() {
                    inode.size as i64
                } else {
                    0
                };
                Delta {
                    raw,
                    stored: inode.stored as i64,
                    files: 1,
                    dirs: 0,
                }
            };
            let mut dir = inode.parent;
            // A circle of directories ends there, too.
            for _ in 0..=self.inodes.len() {
                let total = totals.entry(dir).or_default();
                *total = total.plus(&delta);
                if dir == ROOT {
                    break;
                }
                let Some(above) = self.inodes.get(&dir) else {
                    break;
                };
                dir = above.parent;
            }
        }
        totals
    }
}
