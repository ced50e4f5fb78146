//! What nobody needs any more: orphans, dead packs, packs that are mostly dead.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use shale_codec::FrameKind;
use shale_index::DataCommit;
use shale_index::extent::{Extent, FramePart, Place};

use crate::Error;
use crate::frames::FrameEncoder;
use crate::map::FileMap;
use crate::pack::{DirectoryEntry, PackId, Scanned, read_directory, scan};
use crate::pins::Pin;
use crate::store::Inner;

/// How long one round may free orphans.
const PURGE_TIME: Duration = Duration::from_millis(200);
/// A pack is rewritten when less of it than this many percent is alive.
const LIVE_PERCENT: u64 = 50;
/// The same when the device is nearly full.
const LIVE_PERCENT_FULL: u64 = 90;

impl Inner {
    /// Runs after a cycle that made everything durable.
    pub(crate) fn clean_up(&self, encoder: &mut FrameEncoder) -> Result<(), Error> {
        if let Some(catalog) = &self.catalog {
            catalog.maintain()?;
        }
        self.purge_orphans()?;
        self.delete_dead_packs()?;
        if let Some(pack) = self.worst_pack()? {
            self.rewrite(pack, encoder)?;
            self.delete_dead_packs()?;
            // There may be more like it.
            self.frames.packs.note_shrunk();
        }
        Ok(())
    }

    fn purge_orphans(&self) -> Result<(), Error> {
        let begun = Instant::now();
        let mut next = 0;
        while begun.elapsed() < PURGE_TIME {
            let Some(ino) = self.released.lock().range(next..).next().copied() else {
                return Ok(());
            };
            next = ino + 1;
            if self.discard(ino) {
                self.purge(ino)?;
                self.released.lock().remove(&ino);
            }
        }
        // The rest does not have to wait for the next tick.
        self.committer.kick_durable();
        Ok(())
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
                Err(e @ Error::Damaged { .. }) => {
                    tracing::warn!("space of a deleted file stays occupied: {e}");
                    BTreeMap::new()
                }
                Err(e) => return Err(e),
            }
        } else {
            BTreeMap::new()
        };
        self.namespace.purge(ino, &freed)?;
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
        for pack in dead {
            self.frames.packs.delete(pack)?;
            self.namespace.forget_pack(pack)?;
        }
        Ok(())
    }

    /// The sealed pack with the most dead bytes, if it is worth rewriting.
    fn worst_pack(&self) -> Result<Option<u64>, Error> {
        if !self.frames.packs.take_shrunk() {
            return Ok(None);
        }
        let percent = if self.space.is_low(&*self.backing) {
            LIVE_PERCENT_FULL
        } else {
            LIVE_PERCENT
        };
        let mut worst = None;
        for (pack, live) in self.frames.packs.live() {
            if live == 0 || !self.frames.packs.is_quiet(pack) {
                continue;
            }
            let len = self.frames.packs.len(pack)?;
            if live * 100 < len * percent {
                worst = worst.max(Some((len - live, pack)));
            }
        }
        Ok(worst.map(|(_, pack)| pack))
    }

    /// Moves everything alive out of a pack.
    pub(crate) fn rewrite(&self, pack: u64, encoder: &mut FrameEncoder) -> Result<(), Error> {
        let file = self.frames.packs.open_pack(pack)?;
        let failed = |source| Error::Io {
            action: "read",
            path: PackId(pack).path(),
            source,
        };
        let entries = match read_directory(&*file, pack).map_err(failed)? {
            Some(entries) => entries,
            None => scan_entries(&*file).map_err(failed)?,
        };
        let mut moves: BTreeMap<u64, Vec<Move>> = BTreeMap::new();
        let mut pins: Vec<Pin> = Vec::new();
        let mut buf = Vec::new();
        for entry in &entries {
            let ino = entry.meta.inode;
            match entry.meta.kind {
                FrameKind::Data if self.refers(ino, pack, entry)? => {
                    let old = FramePart {
                        pack,
                        at: entry.at,
                        frame_len: entry.frame_len,
                        raw_len: entry.raw_len,
                        skip: 0,
                    };
                    let (new, pin) = self.frames.copy(&old, &mut buf)?;
                    pins.push(pin);
                    moves
                        .entry(ino)
                        .or_default()
                        .push(Move { entry: *entry, new });
                }
                FrameKind::Map => {
                    moves.entry(ino).or_default();
                }
                FrameKind::Data | FrameKind::Catalog => {}
            }
        }
        if let Some((lost, source)) = self.frames.packs.sync().pop() {
            return Err(Error::Io {
                action: "sync",
                path: PackId(lost).path(),
                source,
            });
        }
        for (ino, moves) in moves {
            self.relocate(ino, pack, &moves, encoder)?;
        }
        Ok(())
    }

    /// Whether a file still has extents in a frame.
    fn refers(&self, ino: u64, pack: u64, entry: &DirectoryEntry) -> Result<bool, Error> {
        let Some(file) = self.existing(ino)? else {
            return Ok(false);
        };
        let (start, end) = range_of(entry);
        let extents = self.extents(&file, &mut file.state.lock(), start, end);
        self.retire(file);
        Ok(extents?.iter().any(|extent| is_of(extent, pack, entry.at)))
    }

    fn existing(&self, ino: u64) -> Result<Option<std::sync::Arc<crate::File>>, Error> {
        match self.file(ino) {
            Ok(file) => Ok(Some(file)),
            Err(e) if matches!(e.errno(), libc::ENOENT | libc::EINVAL) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Points a file at the copies of its frames, where nothing has changed meanwhile.
    fn relocate(
        &self,
        ino: u64,
        pack: u64,
        moves: &[Move],
        encoder: &mut FrameEncoder,
    ) -> Result<(), Error> {
        let Some(file) = self.existing(ino)? else {
            return Ok(());
        };
        let result = (|| {
            let mut state = file.state.lock();
            let mut extents = Vec::new();
            self.load_map(&file, &mut state)?;
            for Move { entry, new } in moves {
                let (start, end) = range_of(entry);
                for extent in self.extents(&file, &mut state, start, end)? {
                    if let Place::Frame(part) = extent.place
                        && is_of(&extent, pack, entry.at)
                    {
                        let place = Place::Frame(FramePart {
                            skip: part.skip,
                            ..*new
                        });
                        extents.push(Extent { place, ..extent });
                    }
                }
            }
            if !extents.is_empty() {
                let mut commit = DataCommit::default();
                self.lay(&mut state, &extents, &mut commit)?;
                let inline = matches!(commit.map, shale_index::MapChange::Fold(_));
                if let Err(e) = self.namespace.commit_data(ino, &commit) {
                    state.map = None;
                    return Err(e.into());
                }
                self.frames.packs.account(&commit.packs);
                if let Some(map) = state.map.as_mut() {
                    map.committed(inline);
                }
            }
            if state
                .map
                .as_ref()
                .is_some_and(|map| map.is_mapped_in(&[pack]))
            {
                self.fold(&file, &mut state, encoder, &[pack])?;
            }
            Ok(())
        })();
        self.retire(file);
        result
    }
}

/// A frame that was copied out of a pack.
struct Move {
    entry: DirectoryEntry,
    new: FramePart,
}

/// The range of the file that a frame was written for.
fn range_of(entry: &DirectoryEntry) -> (u64, u64) {
    (
        entry.meta.offset,
        entry.meta.offset.saturating_add(u64::from(entry.raw_len)),
    )
}

fn is_of(extent: &Extent, pack: u64, at: u64) -> bool {
    matches!(&extent.place, Place::Frame(part) if part.pack == pack && part.at == at)
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
