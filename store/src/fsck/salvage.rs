//! Salvage when the catalog is incomplete.
//!
//! The frames in packs name their inode and offset. Files and directories without a name go to
//! `lost+found`; files that may be outdated are reported.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use shale_backing::{Access, Backing, BackingFile};
use shale_codec::FrameKind;
use shale_index::extent::{Extent, ExtentMap, FrameAt, FramePart, Place, TilePart};
use shale_index::schema::{
    CommitRecord, Dentry, Effect, Inode, MapRoot, Phase, RecordId, S_IFDIR, S_IFMT, S_IFREG, Time,
    decode_number, keys,
};
use shale_index::{Ino, ROOT};

use super::pairs::{self, Pairs};
use super::tally::Tally;
use super::{FsckReport, Problem};
use crate::Error;
use crate::disk::Superblock;
use crate::frame::{Frames, TileDirectory, pieces};
use crate::map::Visited;
use crate::pack::{self, DirectoryEntry, PackBytes, PackId, Scanned, scan};

/// Where files without a name go.
const LOST: &[u8] = b"lost+found";

/// Extents described by frames, with the numbers of the frames, by inode.
type Told = BTreeMap<Ino, Vec<(u64, Extent)>>;

/// Builds a sound tree from the rest of the catalog and the frames.
pub(super) fn salvage(
    backing: &Arc<dyn Backing>,
    superblock: &Superblock,
    pairs: &mut Pairs,
    next: &mut u64,
    report: &mut FsckReport,
) -> Result<(), Error> {
    let told = frames_tell(&**backing)?;
    let tally = pairs::tally(pairs);
    let version = *next;
    *next += 1;
    let unnamed = complete(pairs, &tally, &told, version, report);
    report.repaired(format!(
        "the catalog is incomplete: {unnamed} files and directories without a name are in lost+found"
    ));
    let frames = pairs::frames(backing, superblock)?;
    for inode in tally.inodes.values().filter(|inode| inode.is_file()) {
        if let Some(told) = told.get(&inode.ino)
            && lacks(&tally, &frames, inode, told)
        {
            report.problems.push(Problem {
                what:
                    "the catalog is incomplete, and packs hold data of this file that it does not \
                       list: the file may be outdated or incomplete"
                        .to_owned(),
                file: tally.path(inode.ino).or_else(|| Some(lost_path(inode.ino))),
                offset: None,
                repaired: false,
            });
        }
    }
    Ok(())
}

fn lost_path(ino: Ino) -> String {
    format!("/{}/#{ino}", LOST.escape_ascii())
}

/// The extents described by all frames in all packs.
fn frames_tell(backing: &dyn Backing) -> Result<Told, Error> {
    let mut told = Told::new();
    for PackBytes { pack: id, .. } in pack::list(backing)? {
        let path = id.path();
        let file = backing
            .open(&path, Access::Read)
            .map_err(Error::io("open", &path))?;
        let mut frames = Vec::new();
        scan(&*file, |scanned| {
            if let Scanned::Frame { at, header } = scanned
                && header.raw_len > 0
            {
                frames.push(DirectoryEntry::new(at, &header));
            }
        })
        .map_err(Error::io("read", &path))?;
        for entry in frames {
            for extent in extents_of(&*file, id, &entry) {
                let told = told.entry(entry.meta.inode).or_default();
                told.push((entry.meta.sequence, extent));
            }
        }
    }
    Ok(told)
}

/// Whether there is a frame newer than the file's contents in its place. It was cut off, or was
/// never committed, or its commit is lost.
fn lacks(tally: &Tally, frames: &Frames, inode: &Inode, told: &[(u64, Extent)]) -> bool {
    let numbers: HashMap<FrameAt, u64> = told
        .iter()
        .filter_map(|(number, extent)| Some((extent.place.origin()?, *number)))
        .collect();
    let mut has = ExtentMap::new();
    let visited = tally.visit(frames, inode, |visited| {
        if let Visited::Extent(extent) = visited {
            has.insert(extent);
        }
    });
    // The check that follows reports a map that cannot be read.
    visited.is_ok()
        && told.iter().any(|(number, extent)| {
            let (mut at, end) = (extent.offset, extent.end());
            for there in has.range(extent.range()) {
                let origin = there.place.origin();
                let age = origin.map_or(Some(0), |origin| numbers.get(&origin).copied());
                if there.offset > at || age.is_some_and(|age| age < *number) {
                    return true;
                }
                at = there.end();
            }
            at < end
        })
}

/// Gives everything an inode and a name; returns how many names are in `lost+found`.
fn complete(
    pairs: &mut Pairs,
    tally: &Tally,
    told: &Told,
    version: u64,
    report: &mut FsckReport,
) -> usize {
    let kept = lost_and_found(pairs);
    let free = free_inode(pairs, tally).max(told.keys().max().map_or(0, |ino| ino + 1));
    let lost = kept.unwrap_or(free);
    let mut named: BTreeSet<Ino> = BTreeSet::from([ROOT, lost]);
    let mut put = |key, value| pairs::put(pairs, version, key, value);
    let mut gone = Vec::new();
    // Directories of which only names are left: their own, or those in them.
    let mut dirs: BTreeMap<Ino, u64> = BTreeMap::new();
    for (parent, _, _) in &tally.dentries {
        if *parent != ROOT && !tally.inodes.contains_key(parent) {
            dirs.entry(*parent).or_insert(lost);
        }
    }
    let mut parents: BTreeMap<Ino, Ino> = BTreeMap::new();
    for (parent, name, dentry) in &tally.dentries {
        let known = tally.inodes.contains_key(&dentry.ino);
        if dentry.kind == S_IFDIR {
            parents.insert(dentry.ino, *parent);
            if !known {
                dirs.insert(dentry.ino, *parent);
            }
        } else if !known && !told.contains_key(&dentry.ino) {
            gone.push(keys::dentry(*parent, name));
            let dir = tally.path(*parent).unwrap_or_else(|| lost_path(*parent));
            report.problems.push(Problem {
                what: "only the name of this file was left, and has been removed".to_owned(),
                file: Some(format!("{dir}/{}", name.escape_ascii())),
                offset: None,
                repaired: false,
            });
            continue;
        }
        named.insert(dentry.ino);
    }
    if !tally.inodes.contains_key(&ROOT) {
        put(
            keys::inode(ROOT),
            node(ROOT, S_IFDIR | 0o755, ROOT).encode(),
        );
    }
    for (&ino, &parent) in &dirs {
        put(
            keys::inode(ino),
            node(ino, S_IFDIR | 0o700, parent).encode(),
        );
    }
    for (&ino, extents) in told
        .iter()
        .filter(|(ino, _)| !tally.inodes.contains_key(ino))
    {
        let mut extents = extents.clone();
        extents.sort_by_key(|(number, _)| *number);
        let map = ExtentMap::from_extents(extents.into_iter().map(|(_, extent)| extent));
        let all: Vec<Extent> = map.iter().copied().collect();
        let mut inode = node(ino, S_IFREG | 0o600, lost);
        inode.size = all.iter().map(Extent::end).max().unwrap_or(0);
        put(keys::inode(ino), inode.encode());
        put(
            keys::record(ino, RecordId { session: 0, seq: 1 }),
            CommitRecord {
                extents: all,
                effect: Effect::Laid,
            }
            .encode(),
        );
    }
    let mut unnamed: Vec<(u64, u32)> = Vec::new();
    for inode in tally.inodes.values() {
        let forgotten = inode.nlink == 0 || tally.orphans.contains(&inode.ino);
        let nowhere = !named.contains(&inode.ino) && !forgotten;
        let parent = if nowhere {
            lost
        } else {
            parents.get(&inode.ino).copied().unwrap_or(inode.parent)
        };
        if parent != inode.parent && (nowhere || inode.is_dir()) {
            let moved = Inode {
                parent,
                ..inode.clone()
            };
            put(keys::inode(inode.ino), moved.encode());
        }
        if nowhere {
            unnamed.push((inode.ino, inode.mode & S_IFMT));
        }
    }
    let made = dirs.keys().map(|ino| (*ino, S_IFDIR));
    let found = told.keys().filter(|ino| !tally.inodes.contains_key(ino));
    let made = made.chain(found.map(|ino| (*ino, S_IFREG)));
    unnamed.extend(made.filter(|(ino, _)| !named.contains(ino)));
    if !unnamed.is_empty() {
        if kept.is_none() {
            let dir = node(lost, S_IFDIR | 0o700, ROOT);
            put(keys::inode(lost), dir.encode());
            let kind = S_IFDIR;
            put(
                keys::dentry(ROOT, LOST),
                Dentry { ino: lost, kind }.encode(),
            );
        }
        for &(ino, kind) in &unnamed {
            let name = format!("#{ino}");
            put(
                keys::dentry(lost, name.as_bytes()),
                Dentry { ino, kind }.encode(),
            );
        }
    }
    for key in gone {
        pairs.remove(&key);
    }
    unnamed.len()
}

/// The directory that an earlier rebuild has created, if it is still there.
fn lost_and_found(pairs: &Pairs) -> Option<u64> {
    let dentry = Dentry::decode(&pairs.get(&keys::dentry(ROOT, LOST))?.value)?;
    let inode = Inode::decode(dentry.ino, &pairs.get(&keys::inode(dentry.ino))?.value)?;
    inode.is_dir().then_some(dentry.ino)
}

/// A number above those of all known inodes, and of all that were handed out.
fn free_inode(pairs: &Pairs, tally: &Tally) -> u64 {
    let known = pairs.keys().filter_map(|key| keys::inode_of(key)).max();
    let named = tally
        .dentries
        .iter()
        .map(|(parent, _, dentry)| *parent.max(&dentry.ino));
    let known = known.max(named.max());
    // Format 2 noted how far it was.
    let counter = pairs.get(&keys::single("ino"));
    let handed_out = counter.and_then(|value| decode_number(&value.value));
    (LAST_RESERVED + 1)
        .max(known.map_or(0, |ino| ino + 1))
        .max(handed_out.unwrap_or(0))
}

/// The place of a frame's bytes, from the frame alone.
fn extents_of(file: &dyn BackingFile, pack: PackId, entry: &DirectoryEntry) -> Vec<Extent> {
    let part = FramePart {
        pack,
        at: entry.at,
        frame_len: entry.frame_len,
        raw_len: entry.raw_len,
        skip: 0,
    };
    let decoded = || {
        let mut stored = vec![0; entry.frame_len as usize];
        let mut raw = Vec::new();
        file.read_exact_at(&mut stored, entry.at).ok()?;
        shale_codec::Decoder::new().decode(&stored, &mut raw).ok()?;
        Some(raw)
    };
    let offset = entry.meta.offset;
    match entry.meta.kind {
        FrameKind::Data => vec![Extent {
            offset,
            len: u64::from(entry.raw_len),
            place: Place::Frame(part),
        }],
        FrameKind::Gather => decoded()
            .and_then(|raw| pieces(&raw))
            .unwrap_or_default()
            .into_iter()
            .map(|piece| Extent {
                offset: piece.range.start,
                len: piece.range.end - piece.range.start,
                place: Place::Frame(FramePart {
                    skip: piece.skip,
                    ..part
                }),
            })
            .collect(),
        FrameKind::Tiles => decoded()
            .and_then(|raw| TileDirectory::decode_unbound(&raw))
            .filter(|(_, body)| *body <= entry.at)
            .map(|(directory, body)| Extent {
                offset,
                len: directory.geometry().len(),
                place: Place::Tiles(TilePart {
                    pack,
                    at: entry.at,
                    frame_len: entry.frame_len,
                    directory_len: entry.raw_len,
                    body,
                    raw_len: directory.geometry().len(),
                    skip: 0,
                }),
            })
            .into_iter()
            .collect(),
        FrameKind::Tile | FrameKind::Map | FrameKind::Catalog => Vec::new(),
    }
}

/// Inode numbers below are not handed out.
const LAST_RESERVED: u64 = 15;

fn node(ino: Ino, mode: u32, parent: Ino) -> Inode {
    let now = Time::now();
    Inode {
        ino,
        mode,
        uid: 0,
        gid: 0,
        rdev: 0,
        // Counted afterwards.
        nlink: 1,
        size: 0,
        stored: 0,
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
        parent,
        chunk_shift: 20,
        phase: Phase::New,
        target: Vec::new(),
        map: MapRoot::Inline(Vec::new()),
        since: 0,
    }
}
