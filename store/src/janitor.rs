//! What nobody needs any more: orphans, dead packs, packs that are mostly dead.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use shale_backing::failpoint::{Stage, reach};
use shale_codec::FrameKind;
use shale_index::DataCommit;
use shale_index::extent::{Extent, FramePart, Place, TilePart};
use shale_index::schema::Phase;

use crate::Error;
use crate::file::{File, FileState};
use crate::files::Held;
use crate::frames::FrameEncoder;
use crate::map::{FileMap, Visited};
use crate::pack::{DirectoryEntry, PackId, Scanned, read_directory, scan};
use crate::pins::Pin;
use crate::store::Inner;

/// How long one round may free orphans.
const PURGE_TIME: Duration = Duration::from_millis(200);
/// A pack is rewritten when less of it than this many percent is alive.
pub(crate) const LIVE_PERCENT: u64 = 50;
/// The same when the device is nearly full.
const LIVE_PERCENT_FULL: u64 = 90;

impl Inner {
    /// Runs after a cycle that made everything durable.
    pub(crate) fn clean_up(&self) -> Result<(), Error> {
        if let Some(catalog) = &self.catalog {
            catalog.maintain()?;
        }
        self.note_sealed()?;
        // One file or pack that cannot be dealt with keeps nobody else's space.
        let purged = self.purge_orphans();
        self.delete_dead_packs().and(purged)
    }

    /// Tells the index which packs have a directory from now on. One that is forgotten here is
    /// as good, only nobody misses its directory.
    pub(crate) fn note_sealed(&self) -> Result<(), Error> {
        let sealed = self.frames.packs.take_sealed();
        if !sealed.is_empty() {
            self.namespace.note_sealed(&sealed)?;
        }
        Ok(())
    }

    fn purge_orphans(&self) -> Result<(), Error> {
        let begun = Instant::now();
        let mut next = 0;
        let mut result = Ok(());
        while begun.elapsed() < PURGE_TIME {
            let Some(ino) = self.released.lock().range(next..).next().copied() else {
                return result;
            };
            next = ino + 1;
            if self.discard(ino) {
                match self.purge(ino) {
                    Ok(()) => drop(self.released.lock().remove(&ino)),
                    Err(e) => result = result.and(Err(e)),
                }
            }
        }
        // The rest does not have to wait for the next tick.
        self.committer.kick_durable();
        result
    }

    fn purge(&self, ino: u64) -> Result<(), Error> {
        let inode = match self.namespace.inode(ino) {
            Ok(inode) => inode,
            Err(e) if e.errno() == libc::ENOENT => return Ok(()),
            Err(e) => return Err(e.into()),
        };
        let freed = if inode.is_file() {
            let records = self.namespace.commit_records(ino)?;
            match FileMap::load(&self.frames, &inode, records)
                .and_then(|mut map| map.usage(&self.frames))
            {
                Ok(usage) => usage,
                Err(e) if matches!(e, Error::Damaged { .. }) || e.is_gone() => {
                    tracing::warn!("space of a deleted file stays occupied: {e}");
                    BTreeMap::new()
                }
                Err(e) => return Err(e),
            }
        } else {
            BTreeMap::new()
        };
        self.namespace.purge(ino, &freed)?;
        reach(Stage::OrphanPurged);
        let changes = freed.iter().map(|(&pack, &bytes)| (pack, -bytes)).collect();
        self.frames.packs.account(&changes);
        Ok(())
    }

    /// Deletes packs that nothing durable refers to.
    fn delete_dead_packs(&self) -> Result<(), Error> {
        let dead = self.frames.packs.dead();
        if dead.is_empty() {
            return Ok(());
        }
        let kv = self.namespace.kv();
        kv.sync(kv.version())?;
        let mut result = Ok(());
        for pack in dead {
            result = self.delete_dead_pack(pack).and(result);
        }
        result
    }

    fn delete_dead_pack(&self, pack: u64) -> Result<(), Error> {
        let len = self.frames.packs.len(pack).unwrap_or(0);
        self.frames.packs.delete(pack)?;
        reach(Stage::GcDeleted);
        let counters = &self.frames.packs.counters;
        counters.packs_deleted.one();
        counters.bytes_deleted.add(len);
        self.namespace.forget_pack(pack)?;
        Ok(())
    }

    /// The sealed pack with the most dead bytes, of those of which less than `percent` is alive
    /// and that are not to be left out. By default that is half, or nearly all when the device is
    /// nearly full. What is alive must have room beside it, or copies would fill the device
    /// before anything is freed.
    pub(crate) fn worst_pack(
        &self,
        percent: Option<u64>,
        left_out: &BTreeSet<u64>,
    ) -> Result<Option<u64>, Error> {
        let percent = percent.unwrap_or_else(|| {
            if self.space.is_low(&*self.backing) {
                LIVE_PERCENT_FULL
            } else {
                LIVE_PERCENT
            }
        });
        let room = self.space.room(&*self.backing, self.budget.used());
        let mut worst = None;
        let mut too_large = false;
        for (pack, live) in self.frames.packs.live() {
            if live == 0 || left_out.contains(&pack) || !self.frames.packs.is_quiet(pack) {
                continue;
            }
            let Ok(len) = self.frames.packs.len(pack) else {
                if self.frames.packs.is_dead(pack) {
                    continue;
                }
                // Whoever rewrites it meets the error.
                return Ok(Some(pack));
            };
            if live * 100 >= len * percent {
                continue;
            }
            if live > room {
                too_large = true;
            } else {
                worst = worst.max(Some((len - live, pack)));
            }
        }
        match worst {
            Some((_, pack)) => Ok(Some(pack)),
            None if too_large => Err(Error::Refused(libc::ENOSPC)),
            None => Ok(None),
        }
    }

    /// Moves everything alive out of a pack. Where that fails, what has been copied by then is
    /// used all the same: it need not be copied again.
    pub(crate) fn rewrite(&self, pack: u64, encoder: &mut FrameEncoder) -> Result<(), Error> {
        let mut copies = Vec::new();
        let mut pins: Vec<Pin> = Vec::new();
        let mut outcome = Ok(());
        for ino in self.inodes_in(pack)? {
            let mut moves = Vec::new();
            outcome = self.existing(ino).and_then(|file| {
                file.map_or(Ok(()), |file| {
                    self.copy_out(&file, pack, encoder, &mut moves, &mut pins)
                })
            });
            copies.push((ino, moves));
            if outcome.is_err() {
                break;
            }
        }
        reach(Stage::GcCopied);
        self.frames.packs.make_durable(&pins)?;
        for (ino, moves) in copies {
            let moved = self.existing(ino).and_then(|file| {
                file.map_or(Ok(()), |file| self.relocate(&file, pack, &moves, encoder))
            });
            outcome = outcome.and(moved);
        }
        outcome
    }

    /// Files that have or had something in a pack.
    fn inodes_in(&self, pack: u64) -> Result<BTreeSet<u64>, Error> {
        let file = self.frames.packs.open_pack(pack)?;
        let failed = |source| Error::Io {
            action: "read",
            path: PackId(pack).path(),
            source,
        };
        let entries = match read_directory(&*file, pack).map_err(failed)? {
            Some(directory) => directory.entries,
            None => scan_entries(&*file).map_err(failed)?,
        };
        Ok(entries
            .iter()
            .filter(|entry| entry.meta.kind != FrameKind::Catalog)
            .map(|entry| entry.meta.inode)
            .collect())
    }

    fn existing(&self, ino: u64) -> Result<Option<Held<'_>>, Error> {
        match self.file(ino) {
            Ok(file) => Ok(Some(self.held(file))),
            Err(e) if matches!(e.errno(), libc::ENOENT | libc::EINVAL) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Copies everything that a file has in a pack.
    fn copy_out(
        &self,
        file: &Arc<File>,
        pack: u64,
        encoder: &mut FrameEncoder,
        moves: &mut Vec<Move>,
        pins: &mut Vec<Pin>,
    ) -> Result<(), Error> {
        let mut live: Vec<Extent> = Vec::new();
        {
            let mut state = file.state.lock();
            self.load_map(file, &mut state)?;
            if let Some(map) = state.map.as_mut() {
                map.visit(&self.frames, |visited| {
                    if let Visited::Extent(extent) = visited
                        && extent.place.pack() == Some(pack)
                    {
                        live.push(extent);
                    }
                })?;
            }
        }
        let mut alive: HashMap<u64, u64> = HashMap::new();
        for extent in &live {
            if let Some((_, at)) = extent.place.origin() {
                *alive.entry(at).or_default() += extent.stored();
            }
        }
        let mut copies: HashMap<u64, Place> = HashMap::new();
        moves.reserve(live.len());
        let mut buf = Vec::new();
        for old in live {
            let at = old.place.origin().map_or(0, |(_, at)| at);
            if let Place::Tiles(part) = &old.place
                && alive.get(&at).copied().unwrap_or(0) < part.stored() / 2
            {
                // Most of the array has been written over: what is left becomes plain frames.
                self.flatten(file, &old, encoder, moves, pins)?;
                continue;
            }
            let copy = match copies.get(&at) {
                Some(copy) => *copy,
                None => {
                    let damaged = |e| match e {
                        Error::Codec(e) => Error::Damaged {
                            ino: file.ino,
                            offset: old.offset,
                            pack,
                            at,
                            detail: e.to_string(),
                        },
                        e => e,
                    };
                    let (copy, pin) = match &old.place {
                        Place::Frame(part) => {
                            self.admit_copy(u64::from(part.frame_len))?;
                            let (part, pin) = self.frames.copy(part, &mut buf).map_err(damaged)?;
                            (Place::Frame(part), pin)
                        }
                        Place::Tiles(part) => {
                            self.admit_copy(part.stored())?;
                            let copied = self.frames.copy_array(part, &mut buf);
                            let (part, pin) = copied.map_err(damaged)?;
                            (Place::Tiles(part), pin)
                        }
                        Place::Hole => continue,
                    };
                    pins.push(pin);
                    copies.insert(at, copy);
                    copy
                }
            };
            let new = match (&old.place, copy) {
                (Place::Frame(old), Place::Frame(new)) => Place::Frame(FramePart {
                    skip: old.skip,
                    ..new
                }),
                (Place::Tiles(old), Place::Tiles(new)) => Place::Tiles(TilePart {
                    skip: old.skip,
                    ..new
                }),
                _ => continue,
            };
            moves.push(Move {
                at,
                new: Extent { place: new, ..old },
            });
        }
        Ok(())
    }

    /// Leaves room for the index and for what programs have been promised.
    fn admit_copy(&self, bytes: u64) -> Result<(), Error> {
        let accepted = self.budget.used();
        self.space.admit_copy(&*self.backing, bytes, accepted)?;
        self.space.spend(bytes);
        Ok(())
    }

    /// Writes a part of an array of tiles as plain frames.
    fn flatten(
        &self,
        file: &Arc<File>,
        old: &Extent,
        encoder: &mut FrameEncoder,
        moves: &mut Vec<Move>,
        pins: &mut Vec<Pin>,
    ) -> Result<(), Error> {
        let mut raw = Vec::new();
        let mut start = old.offset;
        while start < old.end() {
            let (_, chunk_end) = file.chunk_range(file.chunk_of(start));
            let Some(piece) = old.slice(start, chunk_end) else {
                break;
            };
            self.admit_copy(piece.len)?;
            raw.clear();
            raw.resize(piece.len as usize, 0);
            self.frames.copy_extent(&piece, file.ino, &mut raw)?;
            let (part, pin) = self.frames.put(
                encoder,
                FrameKind::Data,
                file.ino,
                piece.offset,
                file.effort().unwrap_or(self.effort),
                &raw,
            )?;
            pins.push(pin);
            moves.push(Move {
                at: old.place.origin().map_or(0, |(_, at)| at),
                new: Extent {
                    place: Place::Frame(part),
                    ..piece
                },
            });
            start = piece.end();
        }
        Ok(())
    }

    /// Points a file at copies, where nothing has changed meanwhile.
    fn relocate(
        &self,
        file: &Arc<File>,
        pack: u64,
        moves: &[Move],
        encoder: &mut FrameEncoder,
    ) -> Result<(), Error> {
        let mut state = file.state.lock();
        let mut extents = Vec::new();
        for Move { at, new } in moves {
            for now in self.extents(file, &mut state, new.offset, new.end())? {
                if now.place.origin() == Some((pack, *at)) {
                    extents.extend(new.slice(now.offset, now.end()));
                }
            }
        }
        self.replace(file, &mut state, &extents, None)?;
        reach(Stage::GcMoved);
        self.load_map(file, &mut state)?;
        if state
            .map
            .as_ref()
            .is_some_and(|map| map.is_mapped_in(&[pack]))
        {
            self.fold(file, &mut state, encoder, &[pack])?;
        }
        Ok(())
    }

    /// Commits extents that hold what the file holds already.
    pub(crate) fn replace(
        &self,
        file: &File,
        state: &mut FileState,
        extents: &[Extent],
        phase: Option<Phase>,
    ) -> Result<(), Error> {
        if extents.is_empty() && phase.is_none() {
            return Ok(());
        }
        let commit = DataCommit {
            phase,
            ..DataCommit::default()
        };
        self.commit_laid(file, state, extents, commit)
    }
}

/// What was copied out of a pack.
struct Move {
    /// Where in the pack it was.
    at: u64,
    /// Where it is now.
    new: Extent,
}

fn scan_entries(file: &dyn shale_backing::BackingFile) -> std::io::Result<Vec<DirectoryEntry>> {
    let mut entries = Vec::new();
    scan(file, |found| {
        if let Scanned::Frame { at, header } = found {
            entries.push(DirectoryEntry::new(at, &header));
        }
    })?;
    Ok(entries)
}
