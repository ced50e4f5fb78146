//! The state of the disk after a loss of power: synced contents and names.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// sled does its own I/O: its directory is copied unchanged.
pub(super) const SLED: &str = "index/sled";
/// The unit that a device writes in one piece.
pub(super) const SECTOR: usize = 512;

/// The object behind a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameTarget {
    Dir,
    File(u64),
}

pub(super) type Names = BTreeMap<PathBuf, NameTarget>;

/// A change of names that is not durable yet. Each happens completely or not at all.
#[derive(Clone, Debug)]
pub(super) enum NameChange {
    Add(PathBuf, NameTarget),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
}

impl NameChange {
    pub(super) fn touches(&self, dir: &Path) -> bool {
        let inside = |path: &Path| path.parent() == Some(dir);
        match self {
            Self::Add(path, _) | Self::Remove(path) => inside(path),
            Self::Rename(from, to) => inside(from) || inside(to),
        }
    }

    pub(super) fn apply(&self, names: &mut Names) {
        match self {
            Self::Add(path, node) => {
                names.insert(path.clone(), *node);
            }
            Self::Rename(from, to) => {
                // The contents of a directory move with it.
                let inside = |(name, _): &(&PathBuf, &NameTarget)| name.starts_with(from);
                let moved: Vec<PathBuf> = names
                    .iter()
                    .filter(inside)
                    .map(|(n, _)| n.clone())
                    .collect();
                for name in moved {
                    let target = to.iter().chain(name.iter().skip(from.iter().count()));
                    if let Some(node) = names.remove(&name) {
                        names.insert(target.collect(), node);
                    }
                }
            }
            Self::Remove(path) => names.retain(|name, _| !name.starts_with(path)),
        }
    }
}

#[derive(Default)]
pub(super) struct Shadow {
    pub(super) next: u64,
    pub(super) names: Names,
    pub(super) durable_names: Names,
    pub(super) pending: Vec<NameChange>,
    /// Synced contents of each file.
    pub(super) durable: HashMap<u64, Vec<u8>>,
    /// Sectors of each file that a failed sync has dropped: the page cache shows them and considers
    /// them written, so no later sync brings them to the disk.
    dropped: HashMap<u64, BTreeSet<usize>>,
}

impl Shadow {
    pub(super) fn change(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.pending.push(change);
    }

    /// The contents that the disk would have if the file was synced now.
    pub(super) fn reaching(&self, id: u64, mut now: Vec<u8>) -> Vec<u8> {
        let synced = self.durable.get(&id).map_or(&[][..], |bytes| bytes);
        for &sector in self.dropped.get(&id).into_iter().flatten() {
            let (at, end) = (sector * SECTOR, now.len().min((sector + 1) * SECTOR));
            for (i, byte) in now.iter_mut().enumerate().take(end).skip(at) {
                *byte = synced.get(i).copied().unwrap_or(0);
            }
        }
        now
    }

    /// A sync of a file has failed: its new bytes are lost unless they are written again.
    pub(super) fn drop_new(&mut self, id: u64, now: &[u8]) {
        let synced = self.durable.get(&id).map_or(&[][..], |bytes| bytes);
        let dropped = self.dropped.entry(id).or_default();
        for (number, sector) in now.chunks(SECTOR).enumerate() {
            let at = number * SECTOR;
            if synced.get(at..at + sector.len()) != Some(sector) {
                dropped.insert(number);
            }
        }
    }

    /// Bytes have been written, so that the next sync covers their sectors again.
    pub(super) fn written(&mut self, id: u64, offset: u64, len: usize) {
        if let Some(dropped) = self.dropped.get_mut(&id) {
            let first = offset as usize / SECTOR;
            let end = (offset as usize + len).div_ceil(SECTOR);
            dropped.retain(|sector| !(first..end).contains(sector));
        }
    }

    pub(super) fn path_of(&self, id: u64) -> Option<&PathBuf> {
        let is_it = |(_, node): &(&PathBuf, &NameTarget)| **node == NameTarget::File(id);
        self.names.iter().find(is_it).map(|(path, _)| path)
    }
}

/// Treats everything in a directory as durable, except sled's.
pub(super) fn adopt(root: &Path, dir: &Path, shadow: &mut Shadow) -> io::Result<()> {
    for entry in fs::read_dir(root.join(dir))? {
        let entry = entry?;
        let path = dir.join(entry.file_name());
        if path == Path::new(SLED) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            shadow.durable_names.insert(path.clone(), NameTarget::Dir);
            adopt(root, &path, shadow)?;
        } else {
            shadow.next += 1;
            let id = shadow.next;
            shadow.durable.insert(id, fs::read(entry.path())?);
            shadow.durable_names.insert(path, NameTarget::File(id));
        }
    }
    Ok(())
}
