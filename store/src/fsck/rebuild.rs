//! A new index from what is in the directory of packs.
//!
//! The catalogue there holds every index transaction. Where it is damaged, the frames in packs
//! still say which inode and which offset they belong to: files that no name is left for are
//! gathered in `lost+found`.

use std::collections::BTreeMap;
use std::sync::Arc;

use shale_backing::{Access, Backing, BackingFile};
use shale_codec::FrameKind;
use shale_index::ROOT;
use shale_index::engine::Embedded;
use shale_index::extent::{Extent, ExtentMap, FramePart, Place, TilePart};
use shale_index::kv::Versioned;
use shale_index::schema::{
    CommitRecord, Dentry, Inode, MapRoot, Phase, S_IFDIR, S_IFREG, Time, decode_number,
    encode_number, keys,
};

use super::FsckReport;
use super::tally::Tally;
use crate::Error;
use crate::catalog::{self, Expected};
use crate::frames::Frames;
use crate::map::Visited;
use crate::pack::{self, DirectoryEntry, HEADER_LEN, PackId, Packs, Scanned, decode_header, scan};
use crate::settle::gathered;
use crate::superblock::Superblock;
use crate::tiles::Directory;

/// Where files without a name go.
const LOST: &[u8] = b"lost+found";

pub(super) fn rebuild(backing: &Arc<dyn Backing>, report: &mut FsckReport) -> Result<(), Error> {
    let superblock = match Superblock::read(&**backing) {
        Ok(Some(superblock)) => superblock,
        Ok(None) | Err(Error::NotAStore { .. }) => {
            let superblock = new_superblock(&**backing)?;
            superblock.write(&**backing)?;
            report.repaired("the superblock was missing or damaged and has been written anew");
            superblock
        }
        Err(e) => return Err(e),
    };
    let expected = Expected {
        store_id: superblock.id,
        version: None,
    };
    let recovered = catalog::recover(&**backing, expected)?;
    for what in recovered.damaged.iter().chain(&recovered.torn) {
        report.repaired(format!("a part of the catalogue is not readable: {what}"));
    }
    let mut pairs = recovered.pairs;
    let mut next = recovered.next;
    let spoiled = !recovered.damaged.is_empty() || !recovered.torn.is_empty();
    if !recovered.complete || spoiled {
        let rescued = salvage(&**backing, &mut pairs, &mut next)?;
        report.repaired(format!(
            "the catalogue is not whole: {rescued} files without a name are in lost+found"
        ));
    }
    recount(backing, &superblock, &mut pairs, next)?;
    let count = pairs.len();
    Embedded::import(&**backing, pairs, next + 1)?;
    report.repaired(format!(
        "the index has been made anew, with {count} records"
    ));
    Ok(())
}

/// A superblock with the identity that the packs know.
fn new_superblock(backing: &dyn Backing) -> Result<Superblock, Error> {
    let mut superblock = Superblock::fresh().map_err(Error::io("make an identity for", "."))?;
    for (id, _) in pack::list(backing)? {
        let path = PackId(id).path();
        let file = backing
            .open(&path, Access::Read)
            .map_err(Error::io("open", &path))?;
        let mut header = [0; HEADER_LEN];
        if file.read_exact_at(&mut header, 0).is_ok()
            && let Ok((store, _)) = decode_header(&header)
        {
            superblock.id = store;
            break;
        }
    }
    Ok(superblock)
}

/// Adds files for frames whose inode is not known.
fn salvage(
    backing: &dyn Backing,
    pairs: &mut BTreeMap<Vec<u8>, Versioned>,
    next: &mut u64,
) -> Result<usize, Error> {
    let mut found: BTreeMap<u64, Vec<(u64, Extent)>> = BTreeMap::new();
    for (id, _) in pack::list(backing)? {
        let path = PackId(id).path();
        let file = backing
            .open(&path, Access::Read)
            .map_err(Error::io("open", &path))?;
        let mut frames = Vec::new();
        scan(&*file, |scanned| {
            if let Scanned::Frame { at, header } = scanned
                && header.raw_len > 0
                && !pairs.contains_key(&keys::inode(header.meta.inode))
            {
                frames.push(DirectoryEntry::new(at, &header));
            }
        })
        .map_err(Error::io("read", &path))?;
        for entry in frames {
            let extents = extents_of(&*file, id, &entry);
            found.entry(entry.meta.inode).or_default().extend(
                extents
                    .into_iter()
                    .map(|extent| (entry.meta.sequence, extent)),
            );
        }
    }
    let rooted = pairs.contains_key(&keys::inode(ROOT));
    let kept = lost_and_found(pairs);
    let free = free_inode(pairs).max(found.keys().max().map_or(0, |ino| ino + 1));
    let version = *next;
    *next += 1;
    let mut put = |key: Vec<u8>, value: Vec<u8>| {
        pairs.insert(
            key,
            Versioned {
                value: value.into(),
                version,
                created: version,
            },
        );
    };
    if !rooted {
        let root = node(ROOT, S_IFDIR | 0o755, 2, ROOT);
        put(keys::inode(ROOT), root.encode());
    }
    if found.is_empty() {
        return Ok(0);
    }
    let lost = kept.unwrap_or(free);
    if kept.is_none() {
        let dir = node(lost, S_IFDIR | 0o700, 2, ROOT);
        put(keys::inode(lost), dir.encode());
        let kind = S_IFDIR;
        put(
            keys::dentry(ROOT, LOST),
            Dentry { ino: lost, kind }.encode(),
        );
    }
    for (ino, mut extents) in found.clone() {
        extents.sort_by_key(|(sequence, _)| *sequence);
        let map = ExtentMap::from_extents(extents.into_iter().map(|(_, extent)| extent));
        let all: Vec<Extent> = map.iter().copied().collect();
        let mut inode = node(ino, S_IFREG | 0o600, 1, lost);
        inode.size = all.iter().map(Extent::end).max().unwrap_or(0);
        put(keys::inode(ino), inode.encode());
        put(
            keys::commit(ino, 0, 1),
            CommitRecord { extents: all }.encode(),
        );
        let name = format!("#{ino}");
        put(
            keys::dentry(lost, name.as_bytes()),
            Dentry { ino, kind: S_IFREG }.encode(),
        );
    }
    put(keys::counter("ino"), encode_number(free + 1));
    Ok(found.len())
}

/// The directory that an earlier rebuild has made, if it is still there.
fn lost_and_found(pairs: &BTreeMap<Vec<u8>, Versioned>) -> Option<u64> {
    let dentry = Dentry::decode(&pairs.get(&keys::dentry(ROOT, LOST))?.value)?;
    let inode = Inode::decode(dentry.ino, &pairs.get(&keys::inode(dentry.ino))?.value)?;
    inode.is_dir().then_some(dentry.ino)
}

/// A number above those of all inodes that are known, and of all that were handed out.
fn free_inode(pairs: &BTreeMap<Vec<u8>, Versioned>) -> u64 {
    let known = pairs.keys().filter_map(|key| keys::inode_of(key)).max();
    let counter = pairs.get(&keys::counter("ino"));
    let handed_out = counter.and_then(|value| decode_number(&value.value));
    (LAST_RESERVED + 1)
        .max(known.map_or(0, |ino| ino + 1))
        .max(handed_out.unwrap_or(0))
}

/// What a frame by itself tells about where its bytes belong.
fn extents_of(file: &dyn BackingFile, pack: u64, entry: &DirectoryEntry) -> Vec<Extent> {
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
            .and_then(|raw| gathered(&raw))
            .unwrap_or_default()
            .into_iter()
            .map(|(offset, len, skip)| Extent {
                offset,
                len,
                place: Place::Frame(FramePart { skip, ..part }),
            })
            .collect(),
        FrameKind::Tiles => decoded()
            .and_then(|raw| Directory::decode_unbound(&raw))
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

fn node(ino: u64, mode: u32, nlink: u32, parent: u64) -> Inode {
    let now = Time::now();
    Inode {
        ino,
        mode,
        uid: 0,
        gid: 0,
        rdev: 0,
        nlink,
        size: 0,
        stored: 0,
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
        parent,
        chunk_shift: 20,
        phase: Phase::Fresh,
        target: Vec::new(),
        map: MapRoot::Inline(Vec::new()),
    }
}

/// Sets link counts, stored sizes, totals and live bytes to what is really there.
fn recount(
    backing: &Arc<dyn Backing>,
    superblock: &Superblock,
    pairs: &mut BTreeMap<Vec<u8>, Versioned>,
    version: u64,
) -> Result<(), Error> {
    let mut tally = Tally::default();
    for (key, value) in pairs.iter() {
        tally.take(key, &value.value, value.version);
    }
    let mut put = |key: Vec<u8>, value: Vec<u8>| {
        pairs.insert(
            key,
            Versioned {
                value: value.into(),
                version,
                created: version,
            },
        );
    };
    let packs = Packs::open(Arc::clone(backing), superblock.id, 0, BTreeMap::new())?;
    let frames = Frames::new(packs, 16 << 20);
    let mut live: BTreeMap<u64, u64> = BTreeMap::new();
    let mut links: BTreeMap<u64, u32> = BTreeMap::new();
    for (parent, _, dentry) in &tally.dentries {
        *links.entry(dentry.ino).or_default() += 1;
        if dentry.kind == S_IFDIR {
            *links.entry(*parent).or_default() += 1;
        }
    }
    let mut inodes = std::mem::take(&mut tally.inodes);
    for inode in inodes.values_mut() {
        let named = links.get(&inode.ino).copied().unwrap_or(0);
        let nlink = match (inode.is_dir(), inode.ino == ROOT) {
            (true, true) => named + 2,
            (true, false) if named > 0 => named + 1,
            _ => named,
        };
        let mut changed = nlink != inode.nlink;
        inode.nlink = nlink;
        if inode.is_file() {
            // A map that cannot be read is reported by the check that follows.
            let visited = tally.visit(&frames, inode, |visited| {
                let (pack, bytes) = match visited {
                    Visited::MapFrame(part) => (part.pack, u64::from(part.frame_len)),
                    Visited::Extent(extent) => match extent.place.pack() {
                        Some(pack) => (pack, extent.stored()),
                        None => return,
                    },
                };
                *live.entry(pack).or_default() += bytes;
            });
            if let Ok(stored) = visited
                && stored != inode.stored
            {
                inode.stored = stored;
                changed = true;
            }
        }
        if changed {
            put(keys::inode(inode.ino), inode.encode());
        }
        if inode.nlink == 0 {
            put(keys::orphan(inode.ino), Vec::new());
        }
        match inode.phase {
            Phase::Loose => put(keys::loose(inode.ino), Vec::new()),
            Phase::Hard(_) => put(keys::hard(inode.ino), Vec::new()),
            Phase::Fresh | Phase::Settled => {}
        }
    }
    tally.inodes = inodes;
    for (dir, total) in tally.expected_rollups() {
        put(keys::rollup(dir), total.encode());
    }
    for pack in tally.packs.keys() {
        live.entry(*pack).or_default();
    }
    for (pack, bytes) in live {
        put(keys::pack(pack), encode_number(bytes));
    }
    Ok(())
}
