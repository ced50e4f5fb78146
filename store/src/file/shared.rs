//! Files that other sessions may write, too.
//!
//! What this process has in memory of such a file is never the truth, only a snapshot of it:
//!
//! 1. A data commit adds one private record. It is made of the bytes that were written and of
//!    nothing that was read, so it hides no byte that another session has written.
//! 2. The map changes by a fold of one snapshot. A fold contains exactly the records that it
//!    deletes. Where anything else has replaced the map since, it is refused, and made again from
//!    a new snapshot.
//! 3. Settling and garbage collection replace extents inside a fold, and only where the snapshot
//!    still has the extents that they have copied.
//! 4. The size is that of the snapshot, or the end of the unwritten bytes if that is greater.

use std::collections::BTreeMap;

use shale_backing::failpoint::{Stage, reach};
use shale_index::extent::{Extent, PackId, Place};
use shale_index::schema::{CommitRecord, Effect, Inode, Time};
use shale_index::{Contents, DataCommit, MapChange, RecordCommit};

use super::locked::{LockedFile, Replacement};
use crate::Error;
use crate::frame::{FrameEncoder, while_moved};
use crate::map::FileMap;

/// Records that one fold contains at most, the oldest ones.
const FOLD_AT_ONCE: usize = 48;
/// Folds in a row that other sessions may be in the way of.
const ATTEMPTS: usize = 16;
/// Bytes of an extent in a record, at most.
const EXTENT_BYTES: usize = 64;
/// Packs that a record names at most.
const RECORD_PACKS: usize = 64;
/// Own commits after which this session looks whether the file should be folded.
const LOOK_AFTER: u32 = 32;
/// Records after which a file is folded.
const FOLD_RECORDS: usize = 64;

impl LockedFile<'_> {
    /// Takes over what the index says of the file now.
    pub(crate) fn refresh(&mut self) -> Result<(), Error> {
        let (contents, map) = self.load()?;
        self.adopt(&contents.current(), map);
        self.file.note_unprivileged(false);
        Ok(())
    }

    /// Makes size and map those of one snapshot, if other sessions write. A commit of this session
    /// leaves a size without a map, and the next map may be that of a file that has been cut.
    pub(crate) fn take_snapshot(&mut self) -> Result<(), Error> {
        if self.is_shared() && self.state.map.is_none() {
            self.refresh()?;
        }
        Ok(())
    }

    /// The map of the file in one snapshot. Another session may move its segments meanwhile.
    pub(super) fn load(&self) -> Result<(Contents, FileMap), Error> {
        while_moved(|| {
            let contents = self.volume.namespace.contents(self.file.ino)?;
            let map = FileMap::load(&self.volume.frames, &contents)?;
            Ok((contents, map))
        })
    }

    fn adopt(&mut self, current: &Inode, map: FileMap) {
        let end = self.state.unwritten_end();
        let state = &mut *self.state;
        state.map = Some(map);
        state.committed_size = current.size;
        state.size = current.size.max(end);
        if !state.times_dirty {
            state.mtime = current.mtime;
            state.ctime = current.ctime;
        }
    }

    /// Adds extents to the file, in as many records as the index takes.
    pub(super) fn commit_written(
        &mut self,
        extents: &[Extent],
        change: &DataCommit,
    ) -> Result<(), Error> {
        let times = change.times.unwrap_or((self.mtime, self.ctime));
        let to_settle = change.phase.is_some();
        // Whatever happens, the map in memory is not the file's any more.
        self.state.map = None;
        let pieces = self.pieces(extents);
        let last = pieces.len() - 1;
        for (number, extents) in pieces.into_iter().enumerate() {
            let mut reached = extents.iter().map(Extent::end).max().unwrap_or(0);
            if number == last {
                // Beyond the size in the index there were writes of this session, whatever was
                // punched out of them since.
                reached = reached.max(change.size.unwrap_or(0));
            }
            let effect = Effect::Written {
                reached,
                times,
                stored: extents.iter().map(Extent::stored).sum(),
            };
            self.add_record(extents, effect, to_settle)?;
            let state = &mut *self.state;
            state.committed_size = state.committed_size.max(reached);
        }
        Ok(())
    }

    /// Cuts the file off at a size, or extends it.
    pub(crate) fn commit_cut(&mut self, size: u64, times: (Time, Time)) -> Result<(), Error> {
        self.state.map = None;
        self.add_record(Vec::new(), Effect::Cut { size, times }, false)
    }

    /// Makes a range of the file a hole.
    pub(crate) fn commit_hole(&mut self, hole: Extent, times: (Time, Time)) -> Result<(), Error> {
        self.state.map = None;
        let effect = Effect::Written {
            reached: 0,
            times,
            stored: 0,
        };
        self.add_record(vec![hole], effect, false)
    }

    fn add_record(
        &mut self,
        extents: Vec<Extent>,
        effect: Effect,
        to_settle: bool,
    ) -> Result<(), Error> {
        let mut packs: BTreeMap<PackId, u64> = BTreeMap::new();
        for extent in &extents {
            if let Some(pack) = extent.place.pack() {
                *packs.entry(pack).or_default() += extent.stored();
            }
        }
        let commit = RecordCommit {
            record: &CommitRecord { extents, effect },
            to_settle,
            packs: &packs,
        };
        let namespace = &self.volume.namespace;
        namespace.commit_record(self.file.ino, &commit)?;
        let added = packs.iter().map(|(&pack, &bytes)| (pack, bytes as i64));
        self.volume.frames.packs.account(&added.collect());
        self.state.unfolded += 1;
        Ok(())
    }

    /// Splits extents into lists that each fit into a record.
    fn pieces(&self, extents: &[Extent]) -> Vec<Vec<Extent>> {
        let limits = self.volume.namespace.kv().limits();
        let most = (limits.bytes / 2 / EXTENT_BYTES).max(1);
        let mut pieces = vec![Vec::new()];
        let mut packs: Vec<PackId> = Vec::new();
        for &extent in extents {
            let pack = extent.place.pack().filter(|pack| !packs.contains(pack));
            let full = packs.len() >= RECORD_PACKS.min(limits.ops / 2) && pack.is_some();
            if full || pieces.last().is_some_and(|piece| piece.len() >= most) {
                pieces.push(Vec::new());
                packs.clear();
            }
            packs.extend(extent.place.pack());
            if let Some(piece) = pieces.last_mut() {
                piece.push(extent);
            }
        }
        pieces
    }

    /// Whether this session has added so much that it should look whether to fold the file.
    pub(super) fn wants_look(&self) -> bool {
        self.state.unfolded >= LOOK_AFTER
    }

    /// Folds the file if it has many records, of this or other sessions.
    pub(super) fn fold_if_long(&mut self, encoder: &mut FrameEncoder) -> Result<(), Error> {
        self.state.unfolded = 0;
        let contents = self.volume.namespace.contents(self.file.ino)?;
        if contents.records.len() < FOLD_RECORDS {
            return Ok(());
        }
        self.fold_snapshot(encoder, &[], |_| Ok(Replacement::default()))
    }

    /// Folds the file as of one snapshot, with what `choose` makes of it. `choose` sees the map of
    /// the snapshot, and may be called several times.
    pub(super) fn fold_snapshot(
        &mut self,
        encoder: &mut FrameEncoder,
        avoid: &[PackId],
        mut choose: impl FnMut(&mut Self) -> Result<Replacement, Error>,
    ) -> Result<(), Error> {
        let mut refused = 0;
        while refused < ATTEMPTS {
            let mut contents = self.volume.namespace.contents(self.file.ino)?;
            let partial = contents.records.len() > FOLD_AT_ONCE;
            contents.records.truncate(FOLD_AT_ONCE);
            let loaded = FileMap::load_counting(&self.volume.frames, &contents);
            let (map, hidden) = match loaded {
                Err(Error::PackGone { .. }) if refused + 1 < ATTEMPTS => {
                    refused += 1;
                    continue;
                }
                loaded => loaded?,
            };
            let current = contents.current();
            self.adopt(&current, map);
            let replacement = if partial {
                // First the old ones: `choose` has to see all.
                Replacement::default()
            } else {
                choose(self)?
            };
            match self.try_fold(encoder, avoid, &contents, hidden, &replacement) {
                Ok(()) if partial => {}
                Err(Error::Index(shale_index::Error::Stale)) => refused += 1,
                done => {
                    // Others may have added records since.
                    self.state.map = None;
                    return done;
                }
            }
            self.state.map = None;
        }
        Err(Error::Index(shale_index::Error::Conflict))
    }

    fn try_fold(
        &mut self,
        encoder: &mut FrameEncoder,
        avoid: &[PackId],
        contents: &Contents,
        hidden: Vec<Extent>,
        replacement: &Replacement,
    ) -> Result<(), Error> {
        let (volume, ino) = (self.volume, self.file.ino);
        let current = contents.current();
        let map = self.map()?;
        let moved = map.is_mapped_in(avoid);
        if contents.records.is_empty() && replacement.is_empty() && !moved {
            return Ok(());
        }
        let mut change = DataCommit {
            phase: replacement.phase,
            // What the records say of it; what they hide is subtracted below.
            stored: current.stored as i64 - contents.inode.stored as i64,
            ..DataCommit::default()
        };
        if !contents.records.is_empty() {
            change.size = Some(current.size);
            change.times = Some((current.mtime, current.ctime));
        }
        let replaced = map.insert(&volume.frames, &replacement.extents)?;
        let mut add = |extent: &Extent, sign: i64| {
            if let Some(pack) = extent.place.pack() {
                let bytes = sign * extent.stored() as i64;
                *change.packs.entry(pack).or_default() += bytes;
                bytes
            } else {
                0
            }
        };
        let mut stored = 0;
        for extent in &replacement.extents {
            stored += add(extent, 1);
        }
        for extent in hidden.iter().chain(&replaced) {
            stored += add(extent, -1);
        }
        change.stored += stored;
        let folded = map.fold(&volume.frames, encoder, avoid)?;
        for (&pack, &bytes) in &folded.packs {
            *change.packs.entry(pack).or_default() += bytes;
        }
        let mut fold = map.as_fold(folded.root.clone());
        fold.inode = Some(contents.inode_version);
        change.map = MapChange::Fold(fold);
        reach(Stage::FoldWritten);
        volume.frames.packs.make_durable(&folded.pins)?;
        volume.namespace.commit_data(ino, &change)?;
        reach(Stage::FoldCommitted);
        // What was freed is subtracted when the lists are drained.
        change.packs.retain(|_, bytes| *bytes > 0);
        volume.frames.packs.account(&change.packs);
        self.state.unfolded = 0;
        Ok(())
    }
}

/// A hole over a range.
pub(crate) fn hole(range: std::ops::Range<u64>) -> Extent {
    Extent {
        offset: range.start,
        len: range.end - range.start,
        place: Place::Hole,
    }
}
