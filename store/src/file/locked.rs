//! A file whose state is locked: the only way to see or change its extents.

use std::ops::{Deref, DerefMut, Range};
use std::sync::Arc;

use shale_backing::failpoint::{Stage, reach};
use shale_index::extent::{Extent, PackId};
use shale_index::schema::{MapRoot, Phase};
use shale_index::{DataCommit, MapChange};

use super::state::{File, FileState};
use crate::Error;
use crate::frame::FrameEncoder;
use crate::map::{FileMap, Visited};
use crate::primitives::MutexGuard;
use crate::volume::Volume;

/// Holds the lock of a file's state. Dereferences to the state.
pub(crate) struct LockedFile<'a> {
    volume: &'a Volume,
    file: &'a Arc<File>,
    state: MutexGuard<'a, FileState>,
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

    /// Waits, with the state unlocked, for something to happen to the file.
    pub(crate) fn wait(&mut self) {
        self.file.moved.wait(&mut self.state);
    }

    /// The map of the file, loaded when first needed.
    pub(super) fn map(&mut self) -> Result<&mut FileMap, Error> {
        // single-node: once loaded, the map is right as long as all changes of the file go
        // through this lock.
        let map = match self.state.map.take() {
            Some(map) => map,
            None => {
                let namespace = &self.volume.namespace;
                let inode = namespace.inode(self.file.ino)?;
                let records = namespace.commit_records(self.file.ino)?;
                FileMap::load(&self.volume.frames, &inode, records)?
            }
        };
        Ok(self.state.map.insert(map))
    }

    /// Extents between two offsets in order; gaps are holes.
    pub(crate) fn extents(&mut self, range: Range<u64>) -> Result<Vec<Extent>, Error> {
        let frames = &self.volume.frames;
        self.map()?.range(frames, range.start, range.end)
    }

    /// Stored extents from an offset on, in order and without holes: some, and where to go on;
    /// `None` at the end. However large the file, one call reads little.
    pub(crate) fn extents_from(&mut self, start: u64) -> Result<(Vec<Extent>, Option<u64>), Error> {
        let (size, frames) = (self.size, &self.volume.frames);
        if start >= size {
            return Ok((Vec::new(), None));
        }
        self.map()?.stored_from(frames, start, size)
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
        self.map()?.next_data(frames, range.start, range.end)
    }

    /// Commits extents of the file, with whatever else the commit says.
    pub(crate) fn commit(
        &mut self,
        extents: &[Extent],
        mut change: DataCommit,
    ) -> Result<(), Error> {
        if let Err(e) = self.try_commit(extents, &mut change) {
            // The map may hold some of the extents although the index has none of them. A later
            // commit that covers those would subtract from packs what was never added.
            self.state.map = None;
            return Err(e);
        }
        self.volume.frames.packs.account(&change.packs);
        if let Some(map) = self.state.map.as_mut()
            && change.map != MapChange::Keep
        {
            map.committed(matches!(change.map, MapChange::Fold(_)));
        }
        Ok(())
    }

    fn try_commit(&mut self, extents: &[Extent], change: &mut DataCommit) -> Result<(), Error> {
        if !extents.is_empty() {
            self.lay(extents, change)?;
        }
        let namespace = &self.volume.namespace;
        namespace.commit_data(self.file.ino, change)?;
        Ok(())
    }

    /// Lays extents over the map in memory and puts what follows from that into a commit.
    fn lay(&mut self, extents: &[Extent], change: &mut DataCommit) -> Result<(), Error> {
        let frames = &self.volume.frames;
        let map = self.map()?;
        change.map = match map.inline_with(extents) {
            Some(all) => MapChange::Fold(MapRoot::Inline(all)),
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

    /// Commits extents that hold what the file holds already.
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

    /// Whether the map has grown so much that it should be folded; `false` when it is not loaded.
    pub(crate) fn wants_fold(&self) -> bool {
        self.state.map.as_ref().is_some_and(FileMap::wants_fold)
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
        let (volume, ino) = (self.volume, self.file.ino);
        let map = self.map()?;
        let folded = map.fold(&volume.frames, encoder, avoid)?;
        reach(Stage::FoldWritten);
        volume.frames.packs.make_durable(&folded.pins)?;
        let change = DataCommit {
            map: MapChange::Fold(folded.root.clone()),
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
