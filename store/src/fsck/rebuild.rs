//! Rebuilding the index from the directory of packs.
//!
//! The catalog there holds every index transaction. If it is damaged, the frames in packs help
//! ([`super::salvage`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use shale_backing::{Access, Backing};
use shale_index::engine::IndexHome;
use shale_index::extent::{Extent, MAX_FILE_SIZE, Place};
use shale_index::kv::{Counter, Import};
use shale_index::schema::{
    CommitRecord, Effect, Inode, Phase, S_IFDIR, Time, decode_number, encode_number, keys, totals,
};
use shale_index::{Ino, ROOT, SEQUENCE, old_sequences};

use super::FsckReport;
use super::pairs::{self, Pairs};
use super::salvage::salvage;
use crate::Error;
use crate::catalog::{self, Expected};
use crate::disk::{Format, Superblock};
use crate::map::Visited;
use crate::pack::{self, HEADER_LEN, PackBytes, PackId, decode_header};
use crate::volume::index_home;

pub(super) fn rebuild(backing: &Arc<dyn Backing>, report: &mut FsckReport) -> Result<(), Error> {
    let superblock = match Superblock::read(&**backing) {
        Ok(Some(superblock)) => superblock,
        Ok(None) | Err(Error::NotAStore { .. }) => {
            let superblock = new_superblock(&**backing)?;
            superblock.write(&**backing)?;
            report.repaired("the superblock was missing or damaged and has been rewritten");
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
        report.repaired(format!("a part of the catalog cannot be read: {what}"));
    }
    let mut pairs = recovered.pairs;
    let mut next = recovered.next;
    let spoiled = !recovered.damaged.is_empty() || !recovered.torn.is_empty();
    if !recovered.complete || spoiled {
        salvage(backing, &superblock, &mut pairs, &mut next, report)?;
    }
    let floor = sequence_floor(&**backing, &superblock, &pairs)?;
    let mut pairs = shale_index::upgraded(pairs);
    next = next.max(highest(&**backing, &pairs)?);
    recount(backing, &superblock, &mut pairs, next)?;
    pairs::put(
        &mut pairs,
        next,
        keys::single(SEQUENCE),
        encode_number(floor),
    );
    let count = pairs.len();
    let mut pairs = pairs.into_iter().map(|(key, value)| Import {
        counter: keys::is_counter(&key),
        key,
        value,
    });
    index_home(backing).import(&mut pairs, next + 1)?;
    if superblock.format != Format::Current {
        let format = Format::Current;
        let superblock = Superblock {
            format,
            ..superblock
        };
        superblock.write(&**backing)?;
    }
    report.repaired(format!("the index has been rebuilt, with {count} records"));
    Ok(())
}

/// What the frames of format 2 are numbered up to.
fn sequence_floor(
    backing: &dyn Backing,
    superblock: &Superblock,
    pairs: &Pairs,
) -> Result<u64, Error> {
    let known = pairs.get(&keys::single(SEQUENCE));
    if let Some(floor) = known.and_then(|value| decode_number(&value.value)) {
        return Ok(floor);
    }
    if superblock.format == Format::Current {
        return Ok(0);
    }
    let sessions = pack::list(backing)?.into_iter().map(|on| on.pack.session());
    Ok(old_sequences(sessions.max().unwrap_or(0)))
}

/// The number that the next commit must exceed, since sessions and inodes are numbered by commits.
fn highest(backing: &dyn Backing, pairs: &Pairs) -> Result<u64, Error> {
    let sessions = pack::list(backing)?.into_iter().map(|on| on.pack.session());
    let inodes = pairs.keys().filter_map(|key| keys::inode_of(key));
    let block = inodes.max().unwrap_or(0) >> shale_index::INO_BLOCK_BITS;
    Ok(sessions.max().unwrap_or(0).max(block))
}

/// A superblock with the identity that the packs know.
fn new_superblock(backing: &dyn Backing) -> Result<Superblock, Error> {
    let mut superblock = Superblock::fresh().map_err(Error::io("make an identity for", "."))?;
    for PackBytes { pack: id, .. } in pack::list(backing)? {
        let path = id.path();
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

/// Sets link counts, stored sizes, totals and live bytes to the counted values.
fn recount(
    backing: &Arc<dyn Backing>,
    superblock: &Superblock,
    pairs: &mut Pairs,
    version: u64,
) -> Result<(), Error> {
    let mut tally = pairs::tally(pairs);
    // Counted below, under the keys of this format.
    pairs.retain(|key, _| {
        !keys::is_counter(key)
            && keys::old::totals_of(key).is_none()
            && keys::old::pack_of(key).is_none()
            && !keys::is_freed(key)
    });
    let mut put = |key, value| pairs::put(pairs, version, key, value);
    let frames = pairs::frames(backing, superblock)?;
    let mut live: BTreeMap<PackId, u64> = BTreeMap::new();
    let mut links: BTreeMap<Ino, u32> = BTreeMap::new();
    let mut subdirs: BTreeMap<Ino, i64> = BTreeMap::new();
    for (parent, _, dentry) in &tally.dentries {
        *links.entry(dentry.ino).or_default() += 1;
        if dentry.kind == S_IFDIR {
            *subdirs.entry(*parent).or_default() += 1;
        }
    }
    let mut inodes = std::mem::take(&mut tally.inodes);
    for inode in inodes.values_mut() {
        let named = links.get(&inode.ino).copied().unwrap_or(0);
        let nlink = match (inode.is_dir(), inode.ino == ROOT) {
            (true, true) => 2,
            (true, false) if named > 0 => 2,
            _ => named,
        };
        let mut changed = nlink != inode.nlink;
        inode.nlink = nlink;
        if tally.is_unfolded(inode.ino) {
            let contents = tally.contents(inode);
            *inode = Inode {
                nlink,
                ..contents.current()
            };
            changed = true;
            for record in contents.records {
                put(keys::record(inode.ino, record.id), laid(record.record));
            }
        }
        if inode.is_file() {
            // The check that follows reports a map that cannot be read.
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
            Phase::Stored => put(keys::stored(inode.ino), Vec::new()),
            Phase::Incompressible(_) => put(keys::incompressible(inode.ino), Vec::new()),
            Phase::New | Phase::Settled => {}
        }
    }
    tally.inodes = inodes;
    let mut totals = tally.expected_rollups();
    // Directories from which everything has gone.
    for dir in tally.totals.keys() {
        totals.entry(*dir).or_default();
    }
    for (dir, total) in totals {
        let before = tally.totals.get(&dir).copied().unwrap_or_default();
        let subdirs = subdirs.get(&dir).copied().unwrap_or(0);
        let touched = Counter {
            latest: before.latest,
            ..totals::touched(subdirs, Time::default())
        };
        let counter = total.as_delta().counter().plus(&touched);
        put(keys::totals(dir), counter.encode());
    }
    for pack in tally.packs.keys() {
        live.entry(*pack).or_default();
    }
    for (pack, bytes) in live {
        put(keys::pack(pack), Counter::of(bytes as i64).encode());
    }
    Ok(())
}

/// A record of which the inode knows everything but the extents.
fn laid(record: CommitRecord) -> Vec<u8> {
    let mut extents = record.extents;
    if let Effect::Cut { size, .. } = record.effect {
        extents.insert(
            0,
            Extent {
                offset: size,
                len: MAX_FILE_SIZE - size,
                place: Place::Hole,
            },
        );
    }
    let effect = Effect::Laid;
    CommitRecord { extents, effect }.encode()
}
