//! Where the bytes of one file are: an overlay of recent extents above folded map segments.
//!
//! ```text
//! inode --> inline extents                          (small files)
//!       \-> root segment --> leaf segment           (frames of kind Map in packs)
//!                        \-> leaf segment ...
//! commit records laid over that, in the order of their commits
//! ```
//! A leaf holds the extents of one range of the file; the ranges of all leaves follow each other
//! without a gap. Only leaves that are needed are read, so a file of any size opens at once and
//! takes little memory.

mod fold;
mod segment;

#[cfg(any(test, fuzzing))]
pub(crate) use segment::{decode_leaf, decode_root};

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use shale_index::Ino;
use shale_index::extent::{Extent, ExtentMap, FramePart, MAX_FILE_SIZE, PackId, Place};
use shale_index::schema::{Effect, MapRoot, RecordId};
use shale_index::{Contents, Fold, Record};

use crate::Error;
use crate::frame::Frames;
use segment::{Leaf, Root};

/// Extents that fit into an inode.
const INLINE_EXTENTS: usize = 32;

/// The extents of a file.
#[derive(Debug)]
pub(crate) struct FileMap {
    ino: Ino,
    overlay: ExtentMap,
    /// What the inode said when the map was loaded, or when it was committed last.
    from: MapRoot,
    /// The commit records that are laid over that.
    records: Vec<RecordId>,
    root: Option<Root>,
    /// The leaf used last.
    recent: Option<(u64, Arc<ExtentMap>)>,
}

impl FileMap {
    /// The map of a file: what its inode says, with its commit records laid over that.
    pub(crate) fn load(frames: &Frames, contents: &Contents) -> Result<Self, Error> {
        let mut map = Self::of_inode(frames, contents)?;
        for record in &contents.records {
            map.records.push(record.id);
            for extent in laid(record) {
                map.lay(extent);
            }
        }
        Ok(map)
    }

    /// The same, and what the records hide and packs still count: a commit that changed the inode
    /// has subtracted it already. That needs more of the map than its records touch.
    pub(crate) fn load_counting(
        frames: &Frames,
        contents: &Contents,
    ) -> Result<(Self, Vec<Extent>), Error> {
        let mut map = Self::of_inode(frames, contents)?;
        let mut hidden = Vec::new();
        for record in &contents.records {
            map.records.push(record.id);
            let extents: Vec<Extent> = laid(record).collect();
            let below = map.insert(frames, &extents)?;
            if record.record.effect != Effect::Laid {
                hidden.extend(below);
            }
        }
        Ok((map, hidden))
    }

    fn of_inode(frames: &Frames, contents: &Contents) -> Result<Self, Error> {
        let inode = &contents.inode;
        let (overlay, root) = match &inode.map {
            MapRoot::Inline(extents) => (ExtentMap::from_extents(extents.iter().copied()), None),
            MapRoot::Segments(part) => {
                let root = Root::read(frames, inode.ino, part)?;
                (ExtentMap::new(), Some(root))
            }
        };
        Ok(Self {
            ino: inode.ino,
            overlay,
            from: inode.map.clone(),
            records: Vec::new(),
            root,
            recent: None,
        })
    }

    fn lay(&mut self, extent: Extent) -> Vec<Extent> {
        // A hole needs to be remembered only where it hides a leaf.
        if extent.place == Place::Hole && self.root.is_none() {
            self.overlay.remove(extent.range())
        } else {
            self.overlay.insert(extent)
        }
    }

    /// Extents in a range in order; gaps are holes.
    pub(crate) fn range(
        &mut self,
        frames: &Frames,
        range: Range<u64>,
    ) -> Result<Vec<Extent>, Error> {
        let above: Vec<Extent> = self.overlay.range(range.clone()).collect();
        if self.root.is_none() {
            return Ok(above);
        }
        let mut all = Vec::with_capacity(above.len());
        let mut at = range.start;
        for extent in above {
            self.leaf_range(frames, at..extent.offset, &mut all)?;
            at = extent.end();
            if extent.place != Place::Hole {
                all.push(extent);
            }
        }
        self.leaf_range(frames, at..range.end, &mut all)?;
        Ok(all)
    }

    /// Stored extents of a range, in order and without holes: those of one leaf, and where to go
    /// on; `None` at the end of the range.
    pub(crate) fn stored_in(
        &mut self,
        frames: &Frames,
        range: Range<u64>,
    ) -> Result<(Vec<Extent>, Option<u64>), Error> {
        if range.is_empty() {
            return Ok((Vec::new(), None));
        }
        let Range { start, end } = range;
        let stop = self.leaf_after(start).unwrap_or(end).min(end);
        let mut extents = self.range(frames, start..stop)?;
        extents.retain(|extent| extent.place != Place::Hole);
        Ok((extents, (stop < end).then_some(stop)))
    }

    /// Where the first leaf after an offset begins, if there is one.
    pub(crate) fn leaf_after(&self, offset: u64) -> Option<u64> {
        let leaves = &self.root.as_ref()?.leaves;
        let next = leaves.partition_point(|leaf| leaf.start <= offset);
        leaves.get(next).map(|leaf| leaf.start)
    }

    /// Appends the extents of the leaves in a range.
    fn leaf_range(
        &mut self,
        frames: &Frames,
        range: Range<u64>,
        out: &mut Vec<Extent>,
    ) -> Result<(), Error> {
        let Some(root) = &self.root else {
            return Ok(());
        };
        if range.is_empty() {
            return Ok(());
        }
        let first = root
            .leaves
            .partition_point(|leaf| leaf.start <= range.start)
            .saturating_sub(1);
        let wanted: Vec<Leaf> = root.leaves[first..]
            .iter()
            .take_while(|leaf| leaf.start < range.end)
            .copied()
            .collect();
        for leaf in wanted {
            let extents = self.leaf(frames, &leaf)?;
            out.extend(extents.range(range.clone()));
        }
        Ok(())
    }

    fn leaf(&mut self, frames: &Frames, leaf: &Leaf) -> Result<Arc<ExtentMap>, Error> {
        if let Some((start, extents)) = &self.recent
            && *start == leaf.start
        {
            return Ok(Arc::clone(extents));
        }
        let extents = Arc::new(ExtentMap::from_extents(leaf.read(frames, self.ino)?));
        self.recent = Some((leaf.start, Arc::clone(&extents)));
        Ok(extents)
    }

    /// The first byte of a range that has data.
    pub(crate) fn next_data(
        &mut self,
        frames: &Frames,
        range: Range<u64>,
    ) -> Result<Option<u64>, Error> {
        let stored = |extent: &Extent| extent.place != Place::Hole;
        let Range { start: mut at, end } = range;
        while at < end {
            // Leaf by leaf, however long the holes between the extents are.
            let stop = self.leaf_after(at).unwrap_or(end).min(end);
            let found = if self.root.is_none() {
                self.overlay.range(at..stop).find(stored)
            } else {
                self.range(frames, at..stop)?.into_iter().find(stored)
            };
            if let Some(extent) = found {
                return Ok(Some(extent.offset));
            }
            at = stop;
        }
        Ok(None)
    }

    /// Lays committed extents over the map and returns everything they hide.
    pub(crate) fn insert(
        &mut self,
        frames: &Frames,
        extents: &[Extent],
    ) -> Result<Vec<Extent>, Error> {
        let mut hidden = Vec::new();
        for extent in extents {
            let mut below = Vec::new();
            if self.root.is_some() {
                let mut at = extent.offset;
                let covered: Vec<Extent> = self.overlay.range(extent.range()).collect();
                for cover in covered {
                    self.leaf_range(frames, at..cover.offset, &mut below)?;
                    at = cover.end();
                }
                self.leaf_range(frames, at..extent.end(), &mut below)?;
            }
            hidden.extend(self.lay(*extent));
            hidden.append(&mut below);
        }
        Ok(hidden)
    }

    /// The overlay as the inline map of an inode, if it is small enough.
    pub(crate) fn inline_with(&self, extents: &[Extent]) -> Option<Vec<Extent>> {
        if self.root.is_some()
            || self.overlay.len() > 4 * INLINE_EXTENTS
            || extents.len() > 4 * INLINE_EXTENTS
        {
            return None;
        }
        let mut map = self.overlay.clone();
        for extent in extents {
            if extent.place == Place::Hole {
                map.remove(extent.range());
            } else {
                map.insert(*extent);
            }
        }
        (map.len() <= INLINE_EXTENTS).then(|| map.iter().copied().collect())
    }

    /// The fold that makes this map the one in the inode.
    pub(crate) fn as_fold(&self, root: MapRoot) -> Fold {
        Fold {
            root,
            from: self.from.clone(),
            records: self.records.clone(),
            inode: None,
        }
    }

    /// The map as the inode had it, unless there are records beside it.
    pub(crate) fn folded_root(&self) -> Option<&MapRoot> {
        self.records.is_empty().then_some(&self.from)
    }

    /// Notes that the index holds one more commit record.
    pub(crate) fn appended(&mut self, record: RecordId) {
        self.records.push(record);
    }

    /// Notes that the index holds all of this in the inode.
    pub(crate) fn folded(&mut self, root: MapRoot) {
        self.from = root;
        self.records.clear();
    }

    /// Whether there is nothing to fold.
    pub(crate) fn is_folded(&self) -> bool {
        self.records.is_empty()
    }

    /// Whether a frame of the map itself is in one of these packs.
    pub(crate) fn is_mapped_in(&self, packs: &[PackId]) -> bool {
        self.root.as_ref().is_some_and(|root| {
            packs.contains(&root.part.pack)
                || root
                    .leaves
                    .iter()
                    .any(|leaf| packs.contains(&leaf.part.pack))
        })
    }

    /// Calls `visit` with every extent and every frame of the map itself.
    pub(crate) fn visit(
        &mut self,
        frames: &Frames,
        mut visit: impl FnMut(Visited),
    ) -> Result<(), Error> {
        let Some(root) = self.root.clone() else {
            self.overlay
                .iter()
                .for_each(|extent| visit(Visited::Extent(*extent)));
            return Ok(());
        };
        visit(Visited::MapFrame(root.part));
        for (i, leaf) in root.leaves.iter().enumerate() {
            visit(Visited::MapFrame(leaf.part));
            let end = root
                .leaves
                .get(i + 1)
                .map_or(MAX_FILE_SIZE, |next| next.start);
            for extent in self.range(frames, leaf.start..end)? {
                visit(Visited::Extent(extent));
            }
        }
        Ok(())
    }

    /// Live bytes of packs that a file accounts for, with what its records hide.
    pub(crate) fn counted(
        frames: &Frames,
        contents: &Contents,
    ) -> Result<BTreeMap<PackId, i64>, Error> {
        let (mut map, hidden) = Self::load_counting(frames, contents)?;
        let mut counted = map.usage(frames)?;
        for extent in hidden {
            if let Some(pack) = extent.place.pack() {
                *counted.entry(pack).or_default() += extent.stored() as i64;
            }
        }
        Ok(counted)
    }

    /// Live bytes of packs that this file accounts for.
    pub(crate) fn usage(&mut self, frames: &Frames) -> Result<BTreeMap<PackId, i64>, Error> {
        let mut usage: BTreeMap<PackId, i64> = BTreeMap::new();
        self.visit(frames, |visited| match visited {
            Visited::MapFrame(part) => {
                *usage.entry(part.pack).or_default() += i64::from(part.frame_len);
            }
            Visited::Extent(extent) => {
                if let Some(pack) = extent.place.pack() {
                    *usage.entry(pack).or_default() += extent.stored() as i64;
                }
            }
        })?;
        Ok(usage)
    }
}

/// What a record lays over a file: after a cut, nothing beyond it is left.
fn laid(record: &Record) -> impl Iterator<Item = Extent> {
    let cut = match record.record.effect {
        Effect::Cut { size, .. } if size < MAX_FILE_SIZE => Some(Extent {
            offset: size,
            len: MAX_FILE_SIZE - size,
            place: Place::Hole,
        }),
        _ => None,
    };
    cut.into_iter().chain(record.record.extents.iter().copied())
}

/// What a walk over a map meets.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Visited {
    /// A root or leaf segment.
    MapFrame(FramePart),
    /// An extent of the file.
    Extent(Extent),
}
