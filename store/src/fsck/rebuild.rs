//! A new index from what is in the directory of packs.
//!
//! The catalog there holds every index transaction. Where it is damaged, the frames in packs
//! help out ([`super::salvage`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use shale_backing::{Access, Backing};
use shale_index::ROOT;
use shale_index::engine::Embedded;
use shale_index::schema::{Phase, S_IFDIR, encode_number, keys};

use super::FsckReport;
use super::pairs::{self, Pairs};
use super::salvage::salvage;
use crate::Error;
use crate::catalog::{self, Expected};
use crate::disk::Superblock;
use crate::map::Visited;
use crate::pack::{self, HEADER_LEN, PackId, decode_header};

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
        report.repaired(format!("a part of the catalog is not readable: {what}"));
    }
    let mut pairs = recovered.pairs;
    let mut next = recovered.next;
    let spoiled = !recovered.damaged.is_empty() || !recovered.torn.is_empty();
    if !recovered.complete || spoiled {
        salvage(backing, &superblock, &mut pairs, &mut next, report)?;
    }
    recount(backing, &superblock, &mut pairs, next)?;
    let count = pairs.len();
    Embedded::import(&**backing, pairs, next + 1)?;
    report.repaired(format!("the index has been rebuilt, with {count} records"));
    Ok(())
}

/// A superblock with the identity that the packs know.
fn new_superblock(backing: &dyn Backing) -> Result<Superblock, Error> {
    let mut superblock = Superblock::fresh().map_err(Error::io("make an identity for", "."))?;
    for (id, _) in pack::list(backing)? {
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

/// Sets link counts, stored sizes, totals and live bytes to what is really there.
fn recount(
    backing: &Arc<dyn Backing>,
    superblock: &Superblock,
    pairs: &mut Pairs,
    version: u64,
) -> Result<(), Error> {
    let mut tally = pairs::tally(pairs);
    let mut put = |key, value| pairs::put(pairs, version, key, value);
    let frames = pairs::frames(backing, superblock)?;
    let mut live: BTreeMap<PackId, u64> = BTreeMap::new();
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
            Phase::Stored => put(keys::stored(inode.ino), Vec::new()),
            Phase::Incompressible(_) => put(keys::incompressible(inode.ino), Vec::new()),
            Phase::New | Phase::Settled => {}
        }
    }
    tally.inodes = inodes;
    let mut totals = tally.expected_rollups();
    // Directories from which everything has gone.
    for dir in tally.rollups.keys() {
        totals.entry(*dir).or_default();
    }
    for (dir, total) in totals {
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
