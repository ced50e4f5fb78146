//! Checks: names, links, references, counters, checksums.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use shale_backing::{Access, Backing};
use shale_index::engine::IndexHome;
use shale_index::extent::{FramePart, Place, TilePart};
use shale_index::schema::Phase;
use shale_index::{Ino, Kv, ROOT};

use super::tally::Tally;
use super::{FsckReport, Problem, repair};
use crate::Error;
use crate::catalog::{self, Expected};
use crate::disk::Superblock;
use crate::frame::Frames;
use crate::map::Visited;
use crate::pack::{self, HEADER_LEN, PackBytes, PackId, Packs, decode_header, read_directory};
use crate::volume::index_home;

/// Decoded frames kept while checking.
const CACHE: u64 = 64 << 20;

pub(super) fn check(
    backing: &Arc<dyn Backing>,
    repair: bool,
    report: &mut FsckReport,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), Error> {
    let superblock = Superblock::read(&**backing)?.ok_or(Error::NotAStore {
        path: backing.root().to_owned(),
        reason: "there is no superblock".to_owned(),
    })?;
    let home = index_home(backing);
    if home.is_missing() {
        report.add("the index is missing; `shale fsck --rebuild` rebuilds it from the packs");
        return Ok(());
    }
    let (engine, recovery) = match home.open_to_read() {
        Ok(opened) => opened,
        Err(e) => {
            report.add(format!(
                "the index cannot be read: {e}; `shale fsck --rebuild` rebuilds it from the packs"
            ));
            return Ok(());
        }
    };
    let tally = check_index(backing, &superblock, &*engine, report, progress)?;
    if tally.inodes.is_empty() {
        // A store that was created and never used.
        return Ok(());
    }
    // If the index itself is wrong, the catalog may still be needed.
    let renew = repair && !report.accuses_index();
    check_directories(&**backing, &tally, repair, report)?;
    // The catalog takes as much memory as the index has taken.
    drop(tally);
    let engine = renew.then_some(engine);
    let expected = Expected {
        store_id: superblock.id,
        version: recovery.closed.then_some(recovery.version),
    };
    check_catalog(backing, expected, engine.as_deref(), report)
}

/// Checks what the index says, as of one commit, against itself and against the packs.
pub(super) fn check_index(
    backing: &Arc<dyn Backing>,
    superblock: &Superblock,
    engine: &dyn Kv,
    report: &mut FsckReport,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Tally, Error> {
    let tally = RefCell::new(Tally::default());
    engine.scan(
        &shale_index::kv::everything(),
        &mut |key, value| {
            let mut tally = tally.borrow_mut();
            tally.take(key, &value.value, value.version);
            Ok(())
        },
        &mut || *tally.borrow_mut() = Tally::default(),
    )?;
    let mut tally = tally.into_inner();
    for what in std::mem::take(&mut tally.undecodable) {
        report.add(what);
    }
    if !tally.inodes.is_empty() {
        check_names(&tally, report);
        let packs = check_packs(&**backing, superblock, &tally, report)?;
        check_data(backing, superblock, &tally, &packs, report, progress)?;
        check_rollups(&tally, report);
    }
    Ok(tally)
}

/// Packs that were sealed have a directory; the others need none.
fn check_directories(
    backing: &dyn Backing,
    tally: &Tally,
    repair: bool,
    report: &mut FsckReport,
) -> Result<(), Error> {
    for PackBytes {
        pack: id,
        bytes: len,
    } in pack::list(backing)?
    {
        let Some(&directory) = tally.sealed.get(&id) else {
            continue;
        };
        if tally.live(id) == 0 {
            continue;
        }
        let path = id.path();
        if len < directory {
            report.add(format!(
                "{} has been cut off: it has {len} of {directory} bytes",
                path.display()
            ));
            continue;
        }
        let file = backing
            .open(&path, Access::Read)
            .map_err(Error::io("open", &path))?;
        let found = read_directory(&*file, id).map_err(Error::io("read", &path))?;
        if found.is_some_and(|found| found.at == directory) {
            continue;
        }
        if repair {
            repair::rewrite_directory(backing, id, directory)?;
        }
        report.harmless(
            format!(
                "the directory at the end of {} is damaged; no data is lost{}",
                path.display(),
                advice(repair)
            ),
            repair,
        );
    }
    Ok(())
}

fn advice(repaired: bool) -> &'static str {
    if repaired {
        ""
    } else {
        ", and `shale fsck --repair` rewrites it"
    }
}

/// The next mount renews the remains of a crash; anything else is damage.
fn check_catalog(
    backing: &Arc<dyn Backing>,
    expected: Expected,
    renew: Option<&dyn Kv>,
    report: &mut FsckReport,
) -> Result<(), Error> {
    let damaged = catalog::recover(&**backing, expected)?.damaged;
    let repaired = !damaged.is_empty() && renew.is_some();
    if let Some(engine) = renew.filter(|_| repaired) {
        catalog::renew(backing, expected.store_id, engine)?;
    }
    for what in damaged {
        report.harmless(
            format!(
                "the catalog, a second copy of the index, is wrong: {what}; no data is lost{}",
                advice(repaired)
            ),
            repaired,
        );
    }
    Ok(())
}

fn describe(tally: &Tally, ino: Ino) -> String {
    tally.path(ino).map_or_else(
        || format!("inode {ino}"),
        |path| format!("inode {ino} ({path})"),
    )
}

fn check_names(tally: &Tally, report: &mut FsckReport) {
    let mut links: HashMap<Ino, u32> = HashMap::new();
    let mut subdirs: HashMap<Ino, u32> = HashMap::new();
    for (parent, name, dentry) in &tally.dentries {
        let name = name.escape_ascii();
        match tally.inodes.get(parent) {
            Some(dir) if dir.is_dir() => {}
            _ => report.add(format!(
                "{name} is in inode {parent}, which is not a directory"
            )),
        }
        match tally.inodes.get(&dentry.ino) {
            Some(inode) if inode.is_dir() => {
                *subdirs.entry(*parent).or_default() += 1;
                if inode.parent != *parent {
                    report.add(format!(
                        "{} says it is in {}, but {parent} has it",
                        describe(tally, inode.ino),
                        inode.parent
                    ));
                }
            }
            Some(_) => {}
            None => report.add(format!(
                "{name} in {} names inode {}, which does not exist",
                describe(tally, *parent),
                dentry.ino
            )),
        }
        *links.entry(dentry.ino).or_default() += 1;
    }
    for inode in tally.inodes.values() {
        let found = links.get(&inode.ino).copied().unwrap_or(0);
        let expected = if inode.ino == ROOT || (inode.is_dir() && found > 0) {
            2 + subdirs.get(&inode.ino).copied().unwrap_or(0)
        } else {
            found
        };
        let counted = tally.links(inode);
        if counted != expected {
            report.add(format!(
                "{} counts {counted} links, found {expected}",
                describe(tally, inode.ino),
            ));
        }
        if inode.nlink == 0 && !tally.orphans.contains(&inode.ino) {
            report.add(format!(
                "inode {} has no name and is not waiting to be freed",
                inode.ino
            ));
        }
        let stored = tally.stored.contains(&inode.ino);
        // Records that are not folded list a file before its inode says so.
        if (inode.phase == Phase::Stored) != stored && !(stored && tally.is_unfolded(inode.ino))
            || matches!(inode.phase, Phase::Incompressible(_))
                != tally.incompressible.contains(&inode.ino)
        {
            report.add(format!(
                "{} and the lists of files to settle do not agree",
                describe(tally, inode.ino)
            ));
        }
        if inode.is_dir() {
            report.dirs += 1;
        } else {
            report.files += 1;
        }
    }
    for ino in tally
        .records
        .keys()
        .filter(|ino| !tally.inodes.contains_key(ino))
    {
        report.add(format!(
            "commit records of inode {ino}, which does not exist"
        ));
    }
}

/// Lengths of all packs.
fn check_packs(
    backing: &dyn Backing,
    superblock: &Superblock,
    tally: &Tally,
    report: &mut FsckReport,
) -> Result<BTreeMap<PackId, u64>, Error> {
    let mut lengths = BTreeMap::new();
    for PackBytes {
        pack: id,
        bytes: len,
    } in pack::list(backing)?
    {
        report.packs += 1;
        let path = id.path();
        let file = backing
            .open(&path, Access::Read)
            .map_err(Error::io("open", &path))?;
        lengths.insert(id, len);
        if tally.live(id) == 0 {
            // Nothing in it was ever committed, or nothing is left: it may be in any state.
            continue;
        }
        let mut header = [0; HEADER_LEN];
        let problem = match file.read_exact_at(&mut header, 0) {
            Err(e) => Some(e.to_string()),
            Ok(()) => match decode_header(&header) {
                Err(problem) => Some(problem),
                Ok((store, _)) if store != superblock.id => {
                    Some("it belongs to another store".to_owned())
                }
                Ok((_, named)) if named != id => Some(format!("it says it is pack {named:x}")),
                Ok(_) => None,
            },
        };
        if let Some(problem) = problem {
            report.add(format!("{}: {problem}", path.display()));
        }
    }
    Ok(lengths)
}

fn check_data(
    backing: &Arc<dyn Backing>,
    superblock: &Superblock,
    tally: &Tally,
    packs: &BTreeMap<PackId, u64>,
    report: &mut FsckReport,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), Error> {
    let reader = Packs::open_to_read(Arc::clone(backing), superblock.id)?;
    let frames = Frames::new(reader, CACHE);
    let total: u64 = packs.values().sum();
    let mut live: BTreeMap<PackId, u64> = BTreeMap::new();
    let mut done = 0;
    for inode in tally.inodes.values().filter(|inode| inode.is_file()) {
        let mut wanted: Vec<(FramePart, u64)> = Vec::new();
        let mut arrays: Vec<(TilePart, u64)> = Vec::new();
        let visited = tally.visit(&frames, inode, |visited| match visited {
            Visited::MapFrame(part) => {
                *live.entry(part.pack).or_default() += u64::from(part.frame_len);
            }
            Visited::Extent(extent) => {
                if let Some(pack) = extent.place.pack() {
                    *live.entry(pack).or_default() += extent.stored();
                }
                match extent.place {
                    Place::Frame(part) => wanted.push((part, extent.offset)),
                    Place::Tiles(part) => arrays.push((part, extent.offset)),
                    Place::Hole => {}
                }
            }
        });
        let mut broken: Vec<(Error, Option<u64>)> = Vec::new();
        match visited {
            Ok(_) if tally.is_unfolded(inode.ino) => {}
            Ok(stored) if stored != inode.stored => report.add(format!(
                "{} counts {} stored bytes, found {stored}",
                describe(tally, inode.ino),
                inode.stored
            )),
            Ok(_) => {}
            Err(error) => broken.push((error, None)),
        }
        for (part, offset) in arrays {
            match frames.directory(&part, inode.ino, offset) {
                Ok(directory) => {
                    wanted.push((part.directory(), offset));
                    wanted.extend(directory.frames(&part).map(|frame| (frame, offset)));
                }
                Err(error) => broken.push((error, Some(offset))),
            }
        }
        let mut seen = HashSet::new();
        for (part, offset) in wanted {
            if !seen.insert(part.frame_at()) {
                continue;
            }
            if let Err(error) = frames.get(&part, inode.ino, offset) {
                broken.push((error, Some(offset)));
            }
            report.frames += 1;
            report.frame_bytes += u64::from(part.frame_len);
            done += u64::from(part.frame_len);
            progress(done.min(total), total);
        }
        for (error, offset) in broken {
            report.problems.push(Problem {
                what: error.to_string(),
                file: tally.path(inode.ino),
                offset,
                repaired: false,
            });
        }
    }
    for (pack, counted) in &tally.packs {
        let found = live.get(pack).copied().unwrap_or(0);
        let counted = *counted;
        // What records hide is not freed before they are folded.
        if counted != found as i64 && (tally.is_settled() || counted < found as i64) {
            report.add(format!(
                "{} counts {counted} live bytes, found {found}",
                pack.path().display()
            ));
        }
    }
    for (pack, found) in live
        .iter()
        .filter(|(pack, _)| !tally.packs.contains_key(pack))
    {
        report.add(format!(
            "{} counts no live bytes, found {found}",
            pack.path().display()
        ));
    }
    report.garbage_bytes = total.saturating_sub(live.values().sum());
    progress(total, total);
    Ok(())
}

fn check_rollups(tally: &Tally, report: &mut FsckReport) {
    let expected = tally.expected_rollups();
    let rollups = tally.rollups();
    for inode in tally
        .inodes
        .values()
        .filter(|inode| inode.is_dir() && inode.nlink > 0)
    {
        let wanted = expected.get(&inode.ino).copied().unwrap_or_default();
        let found = rollups.get(&inode.ino).copied().unwrap_or_default();
        if wanted != found {
            report.add(format!(
                "the totals of {} are {found:?}, expected {wanted:?}",
                describe(tally, inode.ino)
            ));
        }
    }
}
