//! Truncating and punching: both take effect at once, in memory and in the index.

use std::ops::Range;
use std::sync::Arc;

use shale_index::DataCommit;
use shale_index::extent::{Extent, MAX_FILE_SIZE, Place};

use super::Writer;
use crate::Error;
use crate::file::{File, LockedFile, hole as hole_over};

impl Writer {
    /// Shortens or extends a file.
    pub(crate) fn truncate(&self, file: &Arc<File>, size: u64) -> Result<(), Error> {
        self.volume.check_writable()?;
        if size > MAX_FILE_SIZE {
            return Err(Error::TooLarge);
        }
        let mut locked = file.lock(&self.volume);
        locked.touch();
        let shrinks = size < locked.size.max(locked.committed_size);
        self.clear(
            &mut locked,
            shrinks.then_some(size..MAX_FILE_SIZE),
            Some(size),
        )
    }

    /// Makes a range read as zeros and frees its space; the size stays.
    pub(crate) fn punch(&self, file: &Arc<File>, range: Range<u64>) -> Result<(), Error> {
        self.volume.check_writable()?;
        let mut locked = file.lock(&self.volume);
        if locked.is_shared() {
            locked.refresh()?;
        }
        let hole = range.start..range.end.min(locked.size);
        locked.touch();
        self.clear(&mut locked, (!hole.is_empty()).then_some(hole), None)
    }

    /// Removes a range from memory and map and commits that together with a new size.
    fn clear(
        &self,
        locked: &mut LockedFile<'_>,
        hole: Option<Range<u64>>,
        size: Option<u64>,
    ) -> Result<(), Error> {
        if locked.is_shared() {
            let times = (locked.mtime, locked.ctime);
            match (&hole, size) {
                (_, Some(size)) => locked.commit_cut(size, times)?,
                (Some(range), None) => locked.commit_hole(hole_over(range.clone()), times)?,
                (None, None) => {}
            }
            self.forget(locked, hole, size);
            return Ok(());
        }
        let change = DataCommit {
            size,
            times: Some((locked.mtime, locked.ctime)),
            ..DataCommit::default()
        };
        let mut extents = Vec::new();
        if let Some(hole) = &hole {
            let below = locked.extents(hole.clone())?;
            // Beyond the last extent there is nothing to hide.
            if let (Some(first), Some(last)) = (below.first(), below.last()) {
                let offset = first.offset.max(hole.start);
                extents.push(Extent {
                    offset,
                    len: last.end() - offset,
                    place: Place::Hole,
                });
            }
        }
        locked.commit(&extents, change)?;
        self.forget(locked, hole, size);
        Ok(())
    }

    /// Removes from memory what has been removed from the file.
    fn forget(&self, locked: &mut LockedFile<'_>, hole: Option<Range<u64>>, size: Option<u64>) {
        let file = locked.file();
        if let Some(hole) = hole {
            let chunks = file.chunk_of(hole.start)..=file.chunk_of(hole.end - 1);
            let freed = locked.punch(&hole, chunks);
            self.volume.limiter.give(freed);
            locked.lost.remove(hole);
        }
        if let Some(size) = size {
            locked.size = size;
            locked.committed_size = size;
            locked.lost.remove(size..u64::MAX);
        }
        locked.times_dirty = false;
    }
}
