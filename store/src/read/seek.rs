//! The next data or hole of a file.

use std::sync::Arc;

use shale_index::extent::Place;

use super::Reader;
use crate::Error;
use crate::file::{File, LockedFile};

/// The target of a search from an offset on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// The next byte that is data.
    Data,
    /// The next byte that is in a hole; the end of the file is one.
    Hole,
}

impl Reader {
    /// The next data or hole at or after an offset; `None` when there is none before the end.
    pub(crate) fn seek(
        &self,
        file: &Arc<File>,
        offset: u64,
        what: Seek,
    ) -> Result<Option<u64>, Error> {
        self.volume.check()?;
        let mut locked = file.lock(&self.volume);
        locked.take_snapshot()?;
        if offset >= locked.size {
            return Ok(None);
        }
        match what {
            Seek::Data => next_data(&mut locked, offset),
            Seek::Hole => {
                let mut at = offset;
                while at < locked.size {
                    match data_end(&mut locked, at)? {
                        Some(end) => at = end,
                        None => break,
                    }
                }
                Ok(Some(at.min(locked.size)))
            }
        }
    }
}

fn next_data(locked: &mut LockedFile<'_>, offset: u64) -> Result<Option<u64>, Error> {
    let size = locked.size;
    let mut found = size;
    let first = locked.file().chunk_of(offset);
    for (_, chunk) in locked.chunks.range(first..) {
        for (start, piece) in chunk.pieces() {
            if start + piece.len() as u64 > offset {
                found = found.min(start.max(offset));
            }
        }
        if found < size {
            break;
        }
    }
    if let Some(stored) = locked.next_stored(offset..found)? {
        found = stored;
    }
    Ok((found < size).then_some(found))
}

/// Where the data that covers `at` ends; `None` when `at` is in a hole.
fn data_end(locked: &mut LockedFile<'_>, at: u64) -> Result<Option<u64>, Error> {
    let file = locked.file();
    let index = file.chunk_of(at);
    let mut end = None;
    if let Some(chunk) = locked.chunks.get(&index) {
        for (start, piece) in chunk.pieces() {
            let stop = start + piece.len() as u64;
            if start <= at && at < stop {
                end = end.max(Some(stop));
            }
        }
    }
    for extent in locked.extents(at..file.chunk_range(index).end)? {
        if extent.offset == at && extent.place != Place::Hole {
            end = end.max(Some(extent.end()));
        }
    }
    Ok(end)
}
