//! Folding: overlay and leaves become new segments.

use std::collections::BTreeMap;

use shale_index::extent::{Extent, ExtentMap, MAX_FILE_SIZE, PackId};
use shale_index::schema::MapRoot;

use super::segment::{Leaf, Root};
use super::{FileMap, INLINE_EXTENTS};
use crate::Error;
use crate::frame::{FrameEncoder, Frames};
use crate::pack::Pin;

/// Extents of a leaf at most.
const LEAF_EXTENTS: usize = 2048;
/// Commit records after which a file is folded.
const FOLD_RECORDS: usize = 64;
/// Extents in the overlay after which a file is folded.
const FOLD_EXTENTS: usize = 4096;

/// A map in new segments that wait to be committed.
#[derive(Debug)]
pub(crate) struct Folded {
    pub(crate) root: MapRoot,
    /// Live bytes of packs before and after.
    pub(crate) packs: BTreeMap<PackId, i64>,
    map: FileMap,
    /// Keep the new segments until they are committed.
    pub(crate) pins: Vec<Pin>,
}

impl FileMap {
    /// Whether the file should be folded soon.
    pub(crate) fn wants_fold(&self) -> bool {
        self.records.len() >= FOLD_RECORDS
            || (!self.records.is_empty() && self.overlay.len() >= FOLD_EXTENTS)
    }

    /// Writes overlay and leaves as a new set of segments; unchanged leaves that are not in `avoid`
    /// stay where they are.
    pub(crate) fn fold(
        &mut self,
        frames: &Frames,
        encoder: &mut FrameEncoder,
        avoid: &[PackId],
    ) -> Result<Folded, Error> {
        if self.root.is_none() && self.overlay.len() <= INLINE_EXTENTS {
            let extents: Vec<Extent> = self.overlay.iter().copied().collect();
            let root = MapRoot::Inline(extents);
            return Ok(Folded {
                packs: BTreeMap::new(),
                map: Self {
                    ino: self.ino,
                    overlay: self.overlay.clone(),
                    from: root.clone(),
                    records: Vec::new(),
                    root: None,
                    recent: None,
                },
                root,
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
            let changed = self.overlay.range(begin..end).next().is_some()
                || kept.is_some_and(|leaf| avoid.contains(&leaf.part.pack));
            match kept {
                Some(leaf) if !changed => leaves.push(leaf),
                _ => {
                    let mut extents = ExtentMap::new();
                    for extent in self.range(frames, begin..end)? {
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
        let part = MapRoot::Segments(root.part);
        Ok(Folded {
            root: part.clone(),
            packs,
            map: Self {
                ino: self.ino,
                overlay: ExtentMap::new(),
                from: part,
                records: Vec::new(),
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
        let pieces: Vec<&[Extent]> = if extents.is_empty() {
            vec![&[]]
        } else {
            extents.chunks(LEAF_EXTENTS).collect()
        };
        pieces
            .into_iter()
            .enumerate()
            .map(|(i, piece)| {
                let start = if i == 0 { begin } else { piece[0].offset };
                Leaf::write(frames, encoder, self.ino, start, piece)
            })
            .collect()
    }

    /// Takes over a fold that has been committed.
    pub(crate) fn adopt(&mut self, folded: Folded) {
        *self = folded.map;
    }
}
