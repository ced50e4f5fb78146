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
//!
//! ```text
//! root: 'R', then a list of extents: per leaf one of length 1 at the leaf's start, which points
//!       at the leaf's frame
//! leaf: 'L', then the list of its extents
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use shale_codec::{Effort, FrameKind};
use shale_index::extent::{
    Extent, ExtentMap, FramePart, MAX_FILE_SIZE, Place, decode_extents, encode_extents,
};
use shale_index::schema::{CommitRecord, Inode, MapRoot};

use crate::Error;
use crate::frames::{FrameEncoder, Frames};
use crate::pins::Pin;

/// Extents that fit into an inode.
const INLINE_EXTENTS: usize = 32;
/// Extents of a leaf at most.
const LEAF_EXTENTS: usize = 2048;
/// Commit records after which a file is folded.
const FOLD_RECORDS: usize = 64;
/// Extents in the overlay after which a file is folded.
const FOLD_EXTENTS: usize = 4096;

/// The extents of a file.
#[derive(Debug)]
pub(crate) struct FileMap {
    ino: u64,
    overlay: ExtentMap,
    records: usize,
    root: Option<Root>,
    /// The leaf used last.
    recent: Option<(u64, Arc<ExtentMap>)>,
}

#[derive(Clone, Debug)]
struct Root {
    part: FramePart,
    leaves: Vec<Leaf>,
}

#[derive(Clone, Copy, Debug)]
struct Leaf {
    start: u64,
    part: FramePart,
}

/// A map that was written anew and waits to be committed.
#[derive(Debug)]
pub(crate) struct Folded {
    pub(crate) root: MapRoot,
    /// Live bytes of packs before and after.
    pub(crate) packs: BTreeMap<u64, i64>,
    map: FileMap,
    /// Keep the new segments until they are committed.
    pub(crate) pins: Vec<Pin>,
}

impl FileMap {
    /// The map of a file: what its inode says, with its commit records laid over that.
    pub(crate) fn load(
        frames: &Frames,
        inode: &Inode,
        records: Vec<CommitRecord>,
    ) -> Result<Self, Error> {
        let mut map = match &inode.map {
            MapRoot::Inline(extents) => Self {
                ino: inode.ino,
                overlay: ExtentMap::from_extents(extents.iter().copied()),
                records: 0,
                root: None,
                recent: None,
            },
            MapRoot::Segments(part) => Self {
                ino: inode.ino,
                overlay: ExtentMap::new(),
                records: 0,
                root: Some(Root::read(frames, inode.ino, part)?),
                recent: None,
            },
        };
        for record in records {
            map.records += 1;
            for extent in record.extents {
                map.lay(extent);
            }
        }
        Ok(map)
    }

    fn lay(&mut self, extent: Extent) -> Vec<Extent> {
        // A hole needs to be remembered only where it hides a leaf.
        if extent.place == Place::Hole && self.root.is_none() {
            self.overlay.remove(extent.offset, extent.end())
        } else {
            self.overlay.insert(extent)
        }
    }

    /// Extents between two offsets in order; gaps are holes.
    pub(crate) fn range(
        &mut self,
        frames: &Frames,
        start: u64,
        end: u64,
    ) -> Result<Vec<Extent>, Error> {
        let above: Vec<Extent> = self.overlay.range(start, end).collect();
        if self.root.is_none() {
            return Ok(above);
        }
        let mut all = Vec::with_capacity(above.len());
        let mut at = start;
        for extent in above {
            self.leaf_range(frames, at, extent.offset, &mut all)?;
            at = extent.end();
            if extent.place != Place::Hole {
                all.push(extent);
            }
        }
        self.leaf_range(frames, at, end, &mut all)?;
        Ok(all)
    }

    /// Where the first leaf begins behind an offset, if there is one.
    pub(crate) fn leaf_after(&self, offset: u64) -> Option<u64> {
        let leaves = &self.root.as_ref()?.leaves;
        let next = leaves.partition_point(|leaf| leaf.start <= offset);
        leaves.get(next).map(|leaf| leaf.start)
    }

    /// Appends what the leaves hold between two offsets.
    fn leaf_range(
        &mut self,
        frames: &Frames,
        start: u64,
        end: u64,
        out: &mut Vec<Extent>,
    ) -> Result<(), Error> {
        let Some(root) = &self.root else {
            return Ok(());
        };
        if start >= end {
            return Ok(());
        }
        let first = root
            .leaves
            .partition_point(|leaf| leaf.start <= start)
            .saturating_sub(1);
        let wanted: Vec<Leaf> = root.leaves[first..]
            .iter()
            .take_while(|leaf| leaf.start < end)
            .copied()
            .collect();
        for leaf in wanted {
            let extents = self.leaf(frames, &leaf)?;
            out.extend(extents.range(start, end));
        }
        Ok(())
    }

    fn leaf(&mut self, frames: &Frames, leaf: &Leaf) -> Result<Arc<ExtentMap>, Error> {
        if let Some((start, extents)) = &self.recent
            && *start == leaf.start
        {
            return Ok(Arc::clone(extents));
        }
        let extents = Arc::new(ExtentMap::from_extents(read_leaf(frames, self.ino, leaf)?));
        self.recent = Some((leaf.start, Arc::clone(&extents)));
        Ok(extents)
    }

    /// The first byte at or after `offset` that has data, below `end`.
    pub(crate) fn next_data(
        &mut self,
        frames: &Frames,
        offset: u64,
        end: u64,
    ) -> Result<Option<u64>, Error> {
        let stored = |extent: &Extent| extent.place != Place::Hole;
        let mut at = offset;
        while at < end {
            // Leaf by leaf, however long the holes between the extents are.
            let stop = self.leaf_after(at).unwrap_or(end).min(end);
            let found = if self.root.is_none() {
                self.overlay.range(at, stop).find(stored)
            } else {
                self.range(frames, at, stop)?.into_iter().find(stored)
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
                let covered: Vec<Extent> =
                    self.overlay.range(extent.offset, extent.end()).collect();
                for cover in covered {
                    self.leaf_range(frames, at, cover.offset, &mut below)?;
                    at = cover.end();
                }
                self.leaf_range(frames, at, extent.end(), &mut below)?;
            }
            hidden.extend(self.lay(*extent));
            hidden.append(&mut below);
        }
        Ok(hidden)
    }

    /// What the overlay would be as the inline map of an inode, if it is small enough.
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
                map.remove(extent.offset, extent.end());
            } else {
                map.insert(*extent);
            }
        }
        (map.len() <= INLINE_EXTENTS).then(|| map.iter().copied().collect())
    }

    /// Notes that the index holds all of this in the inode, or one more commit record.
    pub(crate) fn committed(&mut self, inline: bool) {
        self.records = if inline { 0 } else { self.records + 1 };
    }

    /// Whether there is nothing to fold.
    pub(crate) fn is_folded(&self) -> bool {
        self.records == 0
    }

    pub(crate) fn wants_fold(&self) -> bool {
        self.records >= FOLD_RECORDS || (self.records > 0 && self.overlay.len() >= FOLD_EXTENTS)
    }

    /// Whether a frame of the map itself is in one of these packs.
    pub(crate) fn is_mapped_in(&self, packs: &[u64]) -> bool {
        self.root.as_ref().is_some_and(|root| {
            packs.contains(&root.part.pack)
                || root
                    .leaves
                    .iter()
                    .any(|leaf| packs.contains(&leaf.part.pack))
        })
    }

    /// Writes overlay and leaves as a new set of segments; leaves that nothing changed and that
    /// are not in `avoid` stay where they are.
    pub(crate) fn fold(
        &mut self,
        frames: &Frames,
        encoder: &mut FrameEncoder,
        avoid: &[u64],
    ) -> Result<Folded, Error> {
        if self.root.is_none() && self.overlay.len() <= INLINE_EXTENTS {
            let extents: Vec<Extent> = self.overlay.iter().copied().collect();
            return Ok(Folded {
                root: MapRoot::Inline(extents),
                packs: BTreeMap::new(),
                map: Self {
                    ino: self.ino,
                    overlay: self.overlay.clone(),
                    records: 0,
                    root: None,
                    recent: None,
                },
                pins: Vec::new(),
            });
        }
        let mut pins = Vec::new();
        let mut packs = BTreeMap::new();
        let old = self
            .root
            .as_ref()
            .map_or_else(Vec::new, |root| root.leaves.clone());
        let mut leaves = Vec::new();
        let mut begin = 0;
        let bounds: Vec<u64> = old
            .iter()
            .skip(1)
            .map(|leaf| leaf.start)
            .chain([MAX_FILE_SIZE])
            .collect();
        for (i, &end) in bounds.iter().enumerate() {
            let kept = old.get(i).copied();
            let changed = self.overlay.range(begin, end).next().is_some()
                || kept.is_some_and(|leaf| avoid.contains(&leaf.part.pack));
            match kept {
                Some(leaf) if !changed => leaves.push(leaf),
                _ => {
                    let mut extents = ExtentMap::new();
                    for extent in self.range(frames, begin, end)? {
                        extents.insert(extent);
                    }
                    let all: Vec<Extent> = extents.iter().copied().collect();
                    for (leaf, pin) in self.write_leaves(frames, encoder, begin, &all)? {
                        *packs.entry(leaf.part.pack).or_default() += i64::from(leaf.part.frame_len);
                        leaves.push(leaf);
                        pins.push(pin);
                    }
                    if let Some(leaf) = kept {
                        *packs.entry(leaf.part.pack).or_default() -= i64::from(leaf.part.frame_len);
                    }
                }
            }
            begin = end;
        }
        if let Some(root) = &self.root {
            *packs.entry(root.part.pack).or_default() -= i64::from(root.part.frame_len);
        }
        let (root, pin) = Root::write(frames, encoder, self.ino, leaves)?;
        pins.push(pin);
        *packs.entry(root.part.pack).or_default() += i64::from(root.part.frame_len);
        Ok(Folded {
            root: MapRoot::Segments(root.part),
            packs,
            map: Self {
                ino: self.ino,
                overlay: ExtentMap::new(),
                records: 0,
                root: Some(root),
                recent: None,
            },
            pins,
        })
    }

    fn write_leaves(
        &self,
        frames: &Frames,
        encoder: &mut FrameEncoder,
        begin: u64,
        extents: &[Extent],
    ) -> Result<Vec<(Leaf, Pin)>, Error> {
        let mut leaves = Vec::new();
        let pieces: Vec<&[Extent]> = if extents.is_empty() {
            vec![&[]]
        } else {
            extents.chunks(LEAF_EXTENTS).collect()
        };
        for (i, piece) in pieces.into_iter().enumerate() {
            let start = if i == 0 { begin } else { piece[0].offset };
            let mut raw = vec![b'L'];
            raw.extend_from_slice(&encode_extents(piece));
            let (part, pin) = frames.put(
                encoder,
                FrameKind::Map,
                self.ino,
                start,
                Effort::Zstd(3),
                &raw,
            )?;
            leaves.push((Leaf { start, part }, pin));
        }
        Ok(leaves)
    }

    /// Takes over a fold that has been committed.
    pub(crate) fn adopt(&mut self, folded: Folded) {
        *self = folded.map;
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
            for extent in self.range(frames, leaf.start, end)? {
                visit(Visited::Extent(extent));
            }
        }
        Ok(())
    }

    /// Live bytes of packs that this file accounts for.
    pub(crate) fn usage(&mut self, frames: &Frames) -> Result<BTreeMap<u64, i64>, Error> {
        let mut usage: BTreeMap<u64, i64> = BTreeMap::new();
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

/// What a walk over a map meets.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Visited {
    /// A root or leaf segment.
    MapFrame(FramePart),
    /// An extent of the file.
    Extent(Extent),
}

fn malformed(ino: u64, part: &FramePart) -> Error {
    Error::Damaged {
        ino,
        offset: 0,
        pack: part.pack,
        at: part.at,
        detail: "the map segment does not decode".to_owned(),
    }
}

fn read_leaf(frames: &Frames, ino: u64, leaf: &Leaf) -> Result<Vec<Extent>, Error> {
    let raw = frames.get(&leaf.part, ino, leaf.start)?;
    decode_leaf(&raw, leaf.start).ok_or_else(|| malformed(ino, &leaf.part))
}

/// The extents of a leaf that begins at `start`: in order and without an overlap.
pub(crate) fn decode_leaf(raw: &[u8], start: u64) -> Option<Vec<Extent>> {
    let extents = decode_extents(raw.strip_prefix(b"L")?)?;
    let ordered = extents
        .windows(2)
        .all(|pair| pair[0].end() <= pair[1].offset);
    let inside = extents.first().is_none_or(|first| first.offset >= start);
    (ordered && inside).then_some(extents)
}

/// Where the leaves of a root begin, and their frames.
pub(crate) fn decode_root(raw: &[u8]) -> Option<Vec<(u64, FramePart)>> {
    // A leaf is written like an extent that begins where the leaf does.
    let extents = decode_extents(raw.strip_prefix(b"R")?)?;
    let leaves: Option<Vec<(u64, FramePart)>> = extents
        .iter()
        .map(|extent| match extent.place {
            Place::Frame(part) => Some((extent.offset, part)),
            Place::Hole | Place::Tiles(_) => None,
        })
        .collect();
    let leaves = leaves?;
    let sorted = leaves.windows(2).all(|pair| pair[0].0 < pair[1].0);
    (leaves.first().is_some_and(|&(start, _)| start == 0) && sorted).then_some(leaves)
}

impl Root {
    fn read(frames: &Frames, ino: u64, part: &FramePart) -> Result<Self, Error> {
        let raw = frames.get(part, ino, 0)?;
        let leaves = decode_root(&raw).ok_or_else(|| malformed(ino, part))?;
        let leaf = |(start, part)| Leaf { start, part };
        Ok(Self {
            part: *part,
            leaves: leaves.into_iter().map(leaf).collect(),
        })
    }

    fn write(
        frames: &Frames,
        encoder: &mut FrameEncoder,
        ino: u64,
        leaves: Vec<Leaf>,
    ) -> Result<(Self, Pin), Error> {
        let list: Vec<Extent> = leaves
            .iter()
            .map(|leaf| Extent {
                offset: leaf.start,
                len: 1,
                place: Place::Frame(leaf.part),
            })
            .collect();
        let mut raw = vec![b'R'];
        raw.extend_from_slice(&encode_extents(&list));
        let (part, pin) = frames.put(encoder, FrameKind::Map, ino, 0, Effort::Zstd(3), &raw)?;
        Ok((Self { part, leaves }, pin))
    }
}
