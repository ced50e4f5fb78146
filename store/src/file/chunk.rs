//! Chunks of a file that are in memory.
//!
//! ```text
//! dirty --freeze--> frozen --encode worker--> flushed --committer--> gone
//!   ^                 |                          |
//!   +------ thaw -----+------ sync failed -------+
//! ```

use std::ops::Range;
use std::sync::Arc;

use shale_index::extent::{Extent, PackId};

use super::dirty::DirtyBytes;
use crate::pack::Pin;
use crate::primitives::Mutex;

/// Unwritten bytes of one chunk.
#[derive(Debug, Default)]
pub(crate) struct Chunk {
    pub(crate) dirty: DirtyBytes,
    /// The oldest write among the dirty bytes.
    pub(crate) dirty_seq: u64,
    /// Older bytes that a worker or the committer has.
    pub(crate) frozen: Option<Arc<Frozen>>,
}

/// Bytes of a chunk that are being written and do not change any more.
#[derive(Debug)]
pub(crate) struct Frozen {
    pub(crate) data: DirtyBytes,
    pub(crate) seq: u64,
    /// Ranges truncated or punched out of the file after the bytes were frozen.
    pub(crate) punched: Mutex<Vec<Range<u64>>>,
}

/// A chunk whose frames are in packs.
#[derive(Debug)]
pub(crate) struct Flushed {
    pub(crate) index: u64,
    pub(crate) frozen: Arc<Frozen>,
    pub(crate) extents: Vec<Extent>,
    /// Keep the packs of the frames until they are committed.
    pub(crate) pins: Vec<Pin>,
}

impl Chunk {
    /// All unwritten pieces and where they are in the file, the newest first.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let frozen = self.frozen.iter().flat_map(|frozen| frozen.data.iter());
        self.dirty.iter().chain(frozen)
    }

    /// The end of its unwritten bytes that were not punched out of the file; 0 when there are none.
    pub(super) fn end(&self) -> u64 {
        let end = |(start, piece): (u64, &[u8])| start + piece.len() as u64;
        let dirty = self.dirty.iter().map(end).max().unwrap_or(0);
        let frozen = self.frozen.as_ref().map_or(0, |frozen| {
            let mut left = DirtyBytes::default();
            for (start, piece) in frozen.data.iter() {
                left.write(start, piece, 0);
            }
            for hole in frozen.punched.lock().iter() {
                left.remove(hole.clone());
            }
            left.iter().map(end).max().unwrap_or(0)
        });
        dirty.max(frozen)
    }

    /// Whether these are the frozen bytes of the chunk.
    pub(super) fn is_frozen_as(&self, frozen: &Arc<Frozen>) -> bool {
        self.frozen.as_ref().is_some_and(|f| Arc::ptr_eq(f, frozen))
    }
}

impl Flushed {
    /// The extents without the ranges punched out of the file meanwhile.
    pub(crate) fn surviving(&self) -> Vec<Extent> {
        let mut extents = self.extents.clone();
        for hole in self.frozen.punched.lock().iter() {
            extents = extents
                .iter()
                .flat_map(|e| [e.slice(0..hole.start), e.slice(hole.end..u64::MAX)])
                .flatten()
                .collect();
        }
        extents
    }

    /// Whether one of the packs holds a frame of it.
    pub(crate) fn is_in(&self, packs: &[PackId]) -> bool {
        self.extents
            .iter()
            .filter_map(|extent| extent.place.pack())
            .any(|pack| packs.contains(&pack))
    }
}
