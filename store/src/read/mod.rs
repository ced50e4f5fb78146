//! Reading: memory first, then decoded frames, then packs.

mod prefetch;
mod seek;

use std::ops::Range;
use std::sync::Arc;

use shale_index::extent::{Extent, Place};

use crate::Error;
use crate::file::{File, LockedFile};
use crate::frame::while_moved;
use crate::volume::Volume;
pub(crate) use prefetch::{DecodeWorker, Prefetcher};
pub use seek::Seek;

/// Reads files.
#[derive(Debug)]
pub(crate) struct Reader {
    volume: Arc<Volume>,
    prefetcher: Prefetcher,
}

impl Reader {
    pub(crate) fn new(volume: Arc<Volume>, prefetcher: Prefetcher) -> Self {
        Self { volume, prefetcher }
    }

    /// Ends the threads that decode ahead of readers.
    pub(crate) fn stop(&self) {
        self.prefetcher.stop();
    }

    /// Frames that wait to be decoded ahead of readers.
    pub(crate) fn waiting(&self) -> u64 {
        self.prefetcher.waiting()
    }

    /// Reads up to `len` bytes at an offset, which become the contents of `out`; fewer only at the
    /// end of the file. After an error the contents of `out` are arbitrary.
    pub(crate) fn read(
        &self,
        file: &Arc<File>,
        offset: u64,
        len: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let volume = &*self.volume;
        volume.check()?;
        self.prefetcher.follow(file, offset, len as u64);
        let mut again = false;
        while_moved(|| {
            let wanted = {
                let mut locked = file.lock(volume);
                if std::mem::replace(&mut again, true) && locked.is_shared() {
                    // Another session has moved the frames.
                    locked.refresh()?;
                }
                locked.take_snapshot()?;
                let asked = offset..offset.saturating_add(len as u64);
                if locked.lost.overlaps(&asked) {
                    let ino = file.ino;
                    return Err(Error::Lost { ino, offset });
                }
                let end = locked.size.min(asked.end);
                if offset >= end {
                    out.clear();
                    return Ok(());
                }
                // The previous contents are overwritten whatever the file has there.
                out.resize((end - offset) as usize, 0);
                gather(&mut locked, offset, out)?
            };
            self.fetch(file, &wanted, offset, out)
        })
    }

    fn fetch(
        &self,
        file: &File,
        wanted: &[Extent],
        offset: u64,
        out: &mut [u8],
    ) -> Result<(), Error> {
        for extent in wanted {
            let at = (extent.offset - offset) as usize;
            let len = extent.len as usize;
            self.volume
                .frames
                .copy_extent(extent, file.ino, &mut out[at..at + len])?;
        }
        Ok(())
    }
}

/// Copies bytes in memory, fills holes, and returns the extents that cover the rest.
fn gather(locked: &mut LockedFile<'_>, offset: u64, out: &mut [u8]) -> Result<Vec<Extent>, Error> {
    let file = locked.file();
    let end = offset + out.len() as u64;
    // Ranges not found in memory yet.
    let asked = offset..end;
    let mut missing = vec![asked];
    if !locked.chunks.is_empty() {
        let (first, last) = (file.chunk_of(offset), file.chunk_of(end - 1));
        for (&index, chunk) in locked.chunks.range(first..=last) {
            if let Some(frozen) = &chunk.frozen {
                frozen
                    .data
                    .copy_to(offset, out, |range| remove_range(&mut missing, range));
                let range = file.chunk_range(index);
                for hole in frozen.punched.lock().iter() {
                    // Nothing older is below: the map got its hole when the range was punched.
                    let start = hole.start.max(offset).max(range.start);
                    let stop = hole.end.min(end).min(range.end);
                    if start < stop {
                        out[(start - offset) as usize..(stop - offset) as usize].fill(0);
                        remove_range(&mut missing, start..stop);
                    }
                }
            }
            chunk
                .dirty
                .copy_to(offset, out, |range| remove_range(&mut missing, range));
        }
    }
    if missing.is_empty() {
        return Ok(Vec::new());
    }
    let mut wanted = Vec::new();
    for range in missing {
        let mut at = range.start;
        let end = range.end;
        for extent in locked.extents(range)? {
            if extent.place == Place::Hole {
                continue;
            }
            out[(at - offset) as usize..(extent.offset - offset) as usize].fill(0);
            at = extent.end();
            wanted.push(extent);
        }
        out[(at - offset) as usize..(end - offset) as usize].fill(0);
    }
    Ok(wanted)
}

/// Removes a range from a list of ranges.
fn remove_range(ranges: &mut Vec<Range<u64>>, gone: Range<u64>) {
    if let [only] = &ranges[..]
        && gone.start <= only.start
        && only.end <= gone.end
    {
        ranges.clear();
        return;
    }
    *ranges = ranges
        .iter()
        .flat_map(|range| {
            let before = range.start..range.end.min(gone.start);
            let after = range.start.max(gone.end)..range.end;
            [before, after]
        })
        .filter(|range| !range.is_empty())
        .collect();
}
