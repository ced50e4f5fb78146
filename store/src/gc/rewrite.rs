//! Rewriting a pack: copies everything live out of it, so that it can be deleted.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use shale_backing::failpoint::{Stage, reach};
use shale_codec::{FrameKind, Hint};
use shale_index::Ino;
use shale_index::extent::{Extent, FrameAt, FramePart, Place, TilePart};

use crate::Error;
use crate::file::{File, FileRef, FileTable, Replacement};
use crate::frame::{FrameEncoder, FrameSpec};
use crate::pack::{DirectoryEntry, PackId, Pin, Scanned, failed, read_directory, scan};
use crate::volume::Volume;

/// Rewrites packs.
pub(crate) struct Rewriter<'a> {
    volume: &'a Volume,
    files: &'a FileTable,
    encoder: FrameEncoder,
    buf: Vec<u8>,
}

/// Copies of frames of a pack.
struct Move {
    /// Where in the pack it was.
    at: u64,
    /// Where it is now.
    new: Extent,
}

/// Copies that files do not use yet.
#[derive(Default)]
struct Copies {
    moves: Vec<Move>,
    pins: Vec<Pin>,
}

impl<'a> Rewriter<'a> {
    pub(crate) fn new(volume: &'a Volume, files: &'a FileTable) -> Self {
        Self {
            volume,
            files,
            encoder: FrameEncoder::new(),
            buf: Vec::new(),
        }
    }

    /// Moves everything live out of a pack. If that fails, the copies made so far are still used,
    /// so that they need not be made again.
    pub(crate) fn rewrite(&mut self, pack: PackId) -> Result<(), Error> {
        let mut copied = Vec::new();
        let mut pins: Vec<Pin> = Vec::new();
        let mut outcome = Ok(());
        for ino in self.inodes_in(pack)? {
            let mut copies = Copies::default();
            outcome = self.existing(ino).and_then(|file| {
                file.map_or(Ok(()), |file| self.copy_out(&file, pack, &mut copies))
            });
            copied.push((ino, copies.moves));
            pins.append(&mut copies.pins);
            if outcome.is_err() {
                break;
            }
        }
        reach(Stage::GcCopied);
        self.volume.frames.packs.make_durable(&pins)?;
        for (ino, moves) in copied {
            let moved = self
                .existing(ino)
                .and_then(|file| file.map_or(Ok(()), |file| self.relocate(&file, pack, &moves)));
            outcome = outcome.and(moved);
        }
        outcome
    }

    /// Files that have or had frames in a pack.
    fn inodes_in(&self, pack: PackId) -> Result<BTreeSet<Ino>, Error> {
        let file = self.volume.frames.packs.open_pack(pack)?;
        let entries = match read_directory(&*file, pack).map_err(failed("read", pack))? {
            Some(directory) => directory.entries,
            None => scan_entries(&*file).map_err(failed("read", pack))?,
        };
        Ok(entries
            .iter()
            .filter(|entry| entry.meta.kind != FrameKind::Catalog)
            .map(|entry| entry.meta.inode)
            .collect())
    }

    fn existing(&self, ino: Ino) -> Result<Option<FileRef<'a>>, Error> {
        match self.files.open(ino) {
            Ok(file) => Ok(Some(file)),
            Err(
                Error::NotFound { .. }
                | Error::NotAFile { .. }
                | Error::Index(shale_index::Error::NotFound),
            ) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Copies all frames of a file in a pack.
    fn copy_out(
        &mut self,
        file: &Arc<File>,
        pack: PackId,
        copies: &mut Copies,
    ) -> Result<(), Error> {
        let mut locked = file.lock(self.volume);
        if locked.is_shared() {
            locked.refresh()?;
        }
        let live = locked.extents_in(pack)?;
        drop(locked);
        let mut alive: HashMap<u64, u64> = HashMap::new();
        for extent in &live {
            if let Some(FrameAt { at, .. }) = extent.place.origin() {
                *alive.entry(at).or_default() += extent.stored();
            }
        }
        // Each frame or array is copied once, however many extents point into it.
        let mut places: HashMap<u64, Place> = HashMap::new();
        copies.moves.reserve(live.len());
        for old in live {
            let at = old.place.origin().map_or(0, |frame| frame.at);
            if let Place::Tiles(part) = &old.place
                && alive.get(&at).copied().unwrap_or(0) < part.stored() / 2
            {
                // Most of the array has been overwritten: the rest becomes plain frames.
                self.flatten(file, &old, copies)?;
                continue;
            }
            let place = match places.get(&at) {
                Some(place) => *place,
                None => {
                    let copied = self.copy(&old.place).map_err(|e| match e {
                        Error::Codec(e) => Error::Damaged {
                            ino: file.ino,
                            offset: old.offset,
                            pack,
                            at,
                            detail: e.to_string(),
                        },
                        e => e,
                    })?;
                    let Some((place, pin)) = copied else {
                        continue;
                    };
                    copies.pins.push(pin);
                    places.insert(at, place);
                    place
                }
            };
            if let Some(place) = with_skip_of(&old.place, place) {
                copies.moves.push(Move {
                    at,
                    new: Extent { place, ..old },
                });
            }
        }
        Ok(())
    }

    /// Copies a frame or an array of tiles unchanged; `None` for a hole.
    fn copy(&mut self, place: &Place) -> Result<Option<(Place, Pin)>, Error> {
        let stored = match place {
            Place::Hole => return Ok(None),
            Place::Frame(part) => u64::from(part.frame_len),
            Place::Tiles(part) => part.stored(),
        };
        self.admit_copy(stored)?;
        self.volume.frames.copy(place, &mut self.buf)
    }

    /// Leaves room for the index and for the data promised to programs.
    fn admit_copy(&self, bytes: u64) -> Result<(), Error> {
        let Volume {
            backing,
            limiter,
            space,
            ..
        } = self.volume;
        space.admit_copy(&**backing, bytes, limiter.used())?;
        space.spend(bytes);
        Ok(())
    }

    /// Writes a part of an array of tiles as plain frames.
    fn flatten(
        &mut self,
        file: &Arc<File>,
        old: &Extent,
        copies: &mut Copies,
    ) -> Result<(), Error> {
        let frames = &self.volume.frames;
        let mut raw = Vec::new();
        let mut start = old.offset;
        while start < old.end() {
            let chunk_end = file.chunk_range(file.chunk_of(start)).end;
            let Some(piece) = old.slice(start..chunk_end) else {
                break;
            };
            self.admit_copy(piece.len)?;
            raw.clear();
            raw.resize(piece.len as usize, 0);
            frames.copy_extent(&piece, file.ino, &mut raw)?;
            let spec = FrameSpec {
                kind: FrameKind::Data,
                ino: file.ino,
                offset: piece.offset,
                hint: Hint::Unknown,
                effort: file.effort().unwrap_or(self.volume.effort),
            };
            let (part, pin) = frames.append(&mut self.encoder, &spec, &raw)?;
            copies.pins.push(pin);
            copies.moves.push(Move {
                at: old.place.origin().map_or(0, |frame| frame.at),
                new: Extent {
                    place: Place::Frame(part),
                    ..piece
                },
            });
            start = piece.end();
        }
        Ok(())
    }

    /// Points a file at copies, where its extents have not changed.
    fn relocate(&mut self, file: &Arc<File>, pack: PackId, moves: &[Move]) -> Result<(), Error> {
        let mut locked = file.lock(self.volume);
        locked.replace_where(&[pack], |locked| {
            let mut extents = Vec::new();
            for Move { at, new } in moves {
                for now in locked.extents(new.offset..new.end())? {
                    if now.place.origin() == Some(FrameAt { pack, at: *at }) {
                        extents.extend(new.slice(now.range()));
                    }
                }
            }
            let phase = None;
            Ok(Replacement { extents, phase })
        })?;
        reach(Stage::GcMoved);
        if locked.is_mapped_in(&[pack])? {
            locked.fold(&mut self.encoder, &[pack])?;
        }
        Ok(())
    }
}

/// The copy of a frame or array, from the byte on that an extent uses.
fn with_skip_of(old: &Place, copy: Place) -> Option<Place> {
    match (old, copy) {
        (Place::Frame(old), Place::Frame(new)) => Some(Place::Frame(FramePart {
            skip: old.skip,
            ..new
        })),
        (Place::Tiles(old), Place::Tiles(new)) => Some(Place::Tiles(TilePart {
            skip: old.skip,
            ..new
        })),
        _ => None,
    }
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
