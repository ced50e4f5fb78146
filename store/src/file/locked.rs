//! A file whose state is locked: the only way to see or change its extents.

use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use shale_backing::failpoint::{Stage, reach};
use shale_index::extent::{Extent, PackId};
use shale_index::schema::{MapRoot, Phase, RecordId};
use shale_index::{DataCommit, MapChange};

use super::state::{File, FileState};
use crate::Error;
use crate::frame::FrameEncoder;
use crate::map::{FileMap, Visited};
use crate::primitives::MutexGuard;
use crate::volume::Volume;

/// Holds the lock of a file's state. Dereferences to the state.
pub(crate) struct LockedFile<'a> {
    pub(super) volume: &'a Volume,
    pub(super) file: &'a Arc<File>,
    pub(super) state: MutexGuard<'a, FileState>,
}

/// Extents that hold what a file holds already, and how far it has settled with them.
#[derive(Debug, Default)]
pub(crate) struct Replacement {
    pub(crate) extents: Vec<Extent>,
    pub(crate) phase: Option<Phase>,
}

impl Replacement {
    pub(super) fn is_empty(&self) -> bool {
        self.extents.is_empty() && self.phase.is_none()
    }
}

impl File {
    /// Locks the state of the file.
    pub(crate) fn lock<'a>(self: &'a Arc<Self>, volume: &'a Volume) -> LockedFile<'a> {
        LockedFile {
            volume,
            file: self,
            state: self.state.lock(),
        }
    }
}

impl Deref for LockedFile<'_> {
    type Target = FileState;

    fn deref(&self) -> &FileState {
        &self.state
    }
}

impl DerefMut for LockedFile<'_> {
    fn deref_mut(&mut self) -> &mut FileState {
        &mut self.state
    }
}

impl<'a> LockedFile<'a> {
    /// The file.
    pub(crate) fn file(&self) -> &'a Arc<File> {
        self.file
    }

    /// Waits, with the state unlocked, for an event of the file.
    pub(crate) fn wait(&mut self) {
        self.file.moved.wait(&mut self.state);
    }

    /// The map of the file, loaded when first needed.
    pub(super) fn map(&mut self) -> Result<&mut FileMap, Error> {
        // Where no other session writes, the map is right once it is loaded: all changes of the
        // file go through this lock. Otherwise it shows a snapshot.
        self.take_snapshot()?;
        let map = match self.state.map.take() {
            Some(map) => map,
            None => self.load()?.1,
        };
        Ok(self.state.map.insert(map))
    }

    /// Extents between two offsets in order; gaps are holes.
    pub(crate) fn extents(&mut self, range: Range<u64>) -> Result<Vec<Extent>, Error> {
        let frames = &self.volume.frames;
        self.map()?.range(frames, range)
    }

    /// Stored extents from an offset on, in order and without holes: some, and where to go on;
    /// `None` at the end. However large the file, one call reads little.
    pub(crate) fn extents_from(&mut self, start: u64) -> Result<(Vec<Extent>, Option<u64>), Error> {
        self.take_snapshot()?;
        let (size, frames) = (self.size, &self.volume.frames);
        if start >= size {
            return Ok((Vec::new(), None));
        }
        self.map()?.stored_in(frames, start..size)
    }

    /// Extents in a pack.
    pub(crate) fn extents_in(&mut self, pack: PackId) -> Result<Vec<Extent>, Error> {
        let frames = &self.volume.frames;
        let mut found = Vec::new();
        self.map()?.visit(frames, |visited| {
            if let Visited::Extent(extent) = visited
                && extent.place.pack() == Some(pack)
            {
                found.push(extent);
            }
        })?;
        Ok(found)
    }

    /// The first byte of a range that is stored.
    pub(crate) fn next_stored(&mut self, range: Range<u64>) -> Result<Option<u64>, Error> {
        let frames = &self.volume.frames;
        self.map()?.next_data(frames, range)
    }

    /// Commits extents of the file, with the other changes of the commit.
    pub(crate) fn commit(
        &mut self,
        extents: &[Extent],
        mut change: DataCommit,
    ) -> Result<(), Error> {
        if self.is_shared() {
            return self.commit_written(extents, &change);
        }
        let record = self.try_commit(extents, &mut change).inspect_err(|_| {
            // The map may hold some of the extents although the index has none of them. A later
            // commit that covers those would subtract bytes from packs that were never added.
            self.state.map = None;
        })?;
        self.volume.frames.packs.account(&change.packs);
        if let Some(map) = self.state.map.as_mut() {
            match (change.map, record) {
                (MapChange::Fold(fold), _) => map.folded(fold.root),
                (_, Some(record)) => map.appended(record),
                _ => {}
            }
        }
        Ok(())
    }

    fn try_commit(
        &mut self,
        extents: &[Extent],
        change: &mut DataCommit,
    ) -> Result<Option<RecordId>, Error> {
        if !extents.is_empty() {
            self.lay(extents, change)?;
        }
        let namespace = &self.volume.namespace;
        Ok(namespace.commit_data(self.file.ino, change)?)
    }

    /// Lays extents over the map in memory and adds the consequences to a commit.
    fn lay(&mut self, extents: &[Extent], change: &mut DataCommit) -> Result<(), Error> {
        let frames = &self.volume.frames;
        let map = self.map()?;
        change.map = match map.inline_with(extents) {
            Some(all) => MapChange::Fold(map.as_fold(MapRoot::Inline(all))),
            None => MapChange::Append(extents.to_vec()),
        };
        for extent in extents {
            if let Some(pack) = extent.place.pack() {
                *change.packs.entry(pack).or_default() += extent.stored() as i64;
                change.stored += extent.stored() as i64;
            }
        }
        for extent in map.insert(frames, extents)? {
            if let Some(pack) = extent.place.pack() {
                *change.packs.entry(pack).or_default() -= extent.stored() as i64;
                change.stored -= extent.stored() as i64;
            }
        }
        Ok(())
    }

    /// Commits extents with the same contents as the file.
    pub(crate) fn replace(
        &mut self,
        extents: &[Extent],
        phase: Option<Phase>,
    ) -> Result<(), Error> {
        if extents.is_empty() && phase.is_none() {
            return Ok(());
        }
        let change = DataCommit {
            phase,
            ..DataCommit::default()
        };
        self.commit(extents, change)
    }

    /// Replaces extents by others that `choose` finds for them. It may be called several times,
    /// and sees the file as it is at the commit.
    pub(crate) fn replace_where(
        &mut self,
        avoid: &[PackId],
        mut choose: impl FnMut(&mut Self) -> Result<Replacement, Error>,
    ) -> Result<(), Error> {
        if self.is_shared() {
            return self.fold_snapshot(&mut FrameEncoder::new(), avoid, choose);
        }
        let Replacement { extents, phase } = choose(self)?;
        self.replace(&extents, phase)
    }

    /// Whether other sessions may write the file.
    pub(crate) fn is_shared(&self) -> bool {
        self.volume.namespace.is_shared()
    }

    /// What the inode said of the map when it was loaded, if there were no records beside it.
    pub(crate) fn folded_root(&mut self) -> Result<Option<MapRoot>, Error> {
        Ok(self.map()?.folded_root().cloned())
    }

    /// Whether the map has grown enough to be folded; `false` when it is not loaded.
    fn wants_fold(&self) -> bool {
        self.state.map.as_ref().is_some_and(FileMap::wants_fold)
    }

    /// Folds the file if it has grown so much that it should be.
    pub(crate) fn fold_if_due(&mut self, encoder: &mut FrameEncoder) -> Result<(), Error> {
        if self.wants_look() {
            self.fold_if_long(encoder)
        } else if self.wants_fold() {
            self.fold(encoder, &[])
        } else {
            Ok(())
        }
    }

    /// Whether there is nothing to fold, as far as is known.
    pub(crate) fn is_folded(&self) -> bool {
        self.state.map.as_ref().is_none_or(FileMap::is_folded)
    }

    /// Whether a segment of the map itself is in one of these packs.
    pub(crate) fn is_mapped_in(&mut self, packs: &[PackId]) -> Result<bool, Error> {
        Ok(self.map()?.is_mapped_in(packs))
    }

    /// Merges the commit records of the file into map segments outside the packs to `avoid`.
    pub(crate) fn fold(
        &mut self,
        encoder: &mut FrameEncoder,
        avoid: &[PackId],
    ) -> Result<(), Error> {
        if self.is_shared() {
            return self.fold_snapshot(encoder, avoid, |_| Ok(Replacement::default()));
        }
        let (volume, ino) = (self.volume, self.file.ino);
        let map = self.map()?;
        let folded = map.fold(&volume.frames, encoder, avoid)?;
        reach(Stage::FoldWritten);
        volume.frames.packs.make_durable(&folded.pins)?;
        let change = DataCommit {
            map: MapChange::Fold(map.as_fold(folded.root.clone())),
            packs: folded.packs.clone(),
            ..DataCommit::default()
        };
        volume.namespace.commit_data(ino, &change)?;
        reach(Stage::FoldCommitted);
        volume.frames.packs.account(&change.packs);
        map.adopt(folded);
        Ok(())
    }
}
