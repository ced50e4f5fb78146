//! The correct values of the counters of an index, by counting.

use std::collections::{BTreeMap, HashMap, HashSet};

use shale_index::extent::{Extent, PackId};
use shale_index::kv::Counter;
use shale_index::schema::{
    CommitRecord, Delta, Dentry, Effect, Inode, RecordId, Rollup, decode_freed, decode_number,
    keys, totals,
};
use shale_index::{Contents, Ino, ROOT, Record};

use crate::Error;
use crate::frame::Frames;
use crate::map::{FileMap, Visited};

/// Everything in an index, decoded, and the problems in the records themselves.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) inodes: BTreeMap<Ino, Inode>,
    pub(super) dentries: Vec<(u64, Box<[u8]>, Dentry)>,
    pub(super) records: HashMap<Ino, Vec<Record>>,
    pub(super) orphans: HashSet<Ino>,
    pub(super) stored: HashSet<Ino>,
    pub(super) incompressible: HashSet<Ino>,
    pub(super) totals: BTreeMap<Ino, Counter>,
    /// Live bytes of packs, less what lists of freed bytes say.
    pub(super) packs: BTreeMap<PackId, i64>,
    pub(super) sealed: BTreeMap<PackId, u64>,
    pub(super) undecodable: Vec<String>,
    /// Directories whose totals are those of format 2: their inodes count their links.
    old_dirs: HashSet<Ino>,
    /// Of each inode the place of its first name among the dentries.
    names: HashMap<Ino, usize>,
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
            b'i' => match (keys::inode_of(key), keys::totals_of(key)) {
                (Some(ino), _) => {
                    self.inodes.insert(ino, Inode::decode(ino, value)?);
                }
                (_, Some(dir)) => {
                    self.totals.insert(dir, Counter::decode(value)?);
                }
                _ => self.take_record(keys::record_of(key)?, value, version)?,
            },
            b'd' => {
                let (parent, _, name) = keys::dentry_of(key)?;
                let dentry = Dentry::decode(value)?;
                self.names.entry(dentry.ino).or_insert(self.dentries.len());
                self.dentries.push((parent, name.into(), dentry));
            }
            b'c' => self.take_record(keys::old::record_of(key)?, value, version)?,
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
                let dir = keys::old::totals_of(key)?;
                let rollup = Rollup::decode_old(value)?;
                self.totals.insert(dir, rollup.as_delta().counter());
                self.old_dirs.insert(dir);
            }
            b'p' => {
                let (pack, live) = match keys::old::pack_of(key) {
                    Some(pack) => (pack, decode_number(value)? as i64),
                    None => (keys::pack_of(key)?, Counter::decode(value)?.sums[0]),
                };
                *self.packs.entry(pack).or_default() += live;
            }
            b'e' => {
                for freed in decode_freed(value)? {
                    *self.packs.entry(freed.pack).or_default() -= freed.bytes as i64;
                }
            }
            b'q' => {
                self.sealed
                    .insert(keys::sealed_of(key)?, decode_number(value)?);
            }
            _ => {}
        }
        Some(())
    }

    fn take_record(
        &mut self,
        (ino, id): (u64, RecordId),
        value: &[u8],
        version: u64,
    ) -> Option<()> {
        let record = CommitRecord::decode(value)?;
        let records = self.records.entry(ino).or_default();
        records.push(Record {
            id,
            version,
            record,
        });
        Some(())
    }

    /// Live bytes that the index counts in a pack.
    pub(super) fn live(&self, pack: PackId) -> u64 {
        let live = self.packs.get(&pack).copied().unwrap_or(0);
        u64::try_from(live).unwrap_or(0)
    }

    /// The links that an inode counts.
    pub(super) fn links(&self, inode: &Inode) -> u32 {
        if !inode.is_dir() || inode.nlink == 0 || self.old_dirs.contains(&inode.ino) {
            return inode.nlink;
        }
        let subdirs = self.totals.get(&inode.ino).map_or(0, totals::subdirs);
        2 + u32::try_from(subdirs).unwrap_or(0)
    }

    /// Everything that the index says of a file.
    pub(super) fn contents(&self, inode: &Inode) -> Contents {
        let records = self.records.get(&inode.ino).cloned().unwrap_or_default();
        Contents::of(inode.clone(), records)
    }

    /// Whether a file has records that say more than where its bytes are.
    pub(super) fn is_unfolded(&self, ino: u64) -> bool {
        let records = self.records.get(&ino).into_iter().flatten();
        let mut effects = records.map(|record| record.record.effect);
        effects.any(|effect| effect != Effect::Laid)
    }

    /// Whether all records are folded, or say no more than where bytes are.
    pub(super) fn is_settled(&self) -> bool {
        !self.records.keys().any(|&ino| self.is_unfolded(ino))
    }

    /// The path of an inode, as far as it has a name.
    pub(super) fn path(&self, ino: Ino) -> Option<String> {
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
        FileMap::load(frames, &self.contents(inode))
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

    /// The totals of a directory, with what those below it have not passed on yet.
    pub(super) fn rollups(&self) -> BTreeMap<u64, Rollup> {
        let mut found: BTreeMap<u64, Rollup> = BTreeMap::new();
        for (&dir, counter) in &self.totals {
            let total = found.entry(dir).or_default();
            *total = total.plus(&Rollup::of(counter).as_delta());
            self.add_above(dir, &totals::pending(counter), &mut found);
        }
        found
    }

    /// Adds to all directories above one.
    fn add_above(&self, dir: u64, delta: &Delta, found: &mut BTreeMap<u64, Rollup>) {
        let mut at = dir;
        // A circle of directories ends there, too.
        for _ in 0..=self.inodes.len() {
            let Some(inode) = self.inodes.get(&at) else {
                return;
            };
            if at == ROOT || *delta == Delta::default() {
                return;
            }
            at = inode.parent;
            let total = found.entry(at).or_default();
            *total = total.plus(delta);
        }
    }

    /// The totals that every directory should have.
    pub(super) fn expected_rollups(&self) -> BTreeMap<Ino, Rollup> {
        let mut totals: BTreeMap<Ino, Rollup> = BTreeMap::new();
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
            // A cycle of directories ends there, too.
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
