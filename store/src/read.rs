//! Reading: memory first, then decoded frames, then packs.

use std::io;
use std::sync::Arc;

use shale_index::extent::{Extent, FramePart, Place};

use crate::file::{File, FileState};
use crate::map::FileMap;
use crate::store::Inner;
use crate::{Error, Store};

/// How often somebody looks again for frames that were moved while he was on his way.
const MAX_MOVES: usize = 8;

/// What to look for from an offset on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// The next byte that is data.
    Data,
    /// The next byte that is in a hole; the end of the file is one.
    Hole,
}

impl Store {
    /// Reads up to `len` bytes at an offset, which become the contents of `out`; fewer only at
    /// the end of the file. After an error `out` holds anything.
    ///
    /// # Errors
    /// `EIO` when stored bytes are damaged, or when the device fails.
    pub fn read(
        &self,
        file: &Arc<File>,
        offset: u64,
        len: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let inner = &*self.inner;
        inner.check()?;
        inner.read_ahead(file, offset, len as u64);
        while_moved(|| {
            let wanted = {
                let mut state = file.state.lock();
                let asked = offset..offset.saturating_add(len as u64);
                if state.lost.overlaps(&asked) {
                    let ino = file.ino;
                    return Err(Error::Lost { ino, offset });
                }
                let end = state.size.min(asked.end);
                if offset >= end {
                    out.clear();
                    return Ok(());
                }
                // What it held before is overwritten whatever the file has there.
                out.resize((end - offset) as usize, 0);
                inner.gather(file, &mut state, offset, out)?
            };
            inner.fetch(file, &wanted, offset, out)
        })
    }

    /// Frames and stored bytes that this session has read from packs to decode them.
    #[must_use]
    pub fn read_so_far(&self) -> (u64, u64) {
        self.inner.frames.read_so_far()
    }

    /// Which transforms and coders the frames of a file use, by a look at some of them.
    ///
    /// # Errors
    /// When the map or a frame of the file cannot be read.
    pub fn codecs(&self, ino: u64) -> Result<String, Error> {
        while_moved(|| self.inner.codecs(ino))
    }

    /// The next data or hole at or after an offset; `None` when there is none before the end.
    ///
    /// # Errors
    /// When the map of the file cannot be read.
    pub fn seek(&self, file: &Arc<File>, offset: u64, what: Seek) -> Result<Option<u64>, Error> {
        let inner = &*self.inner;
        inner.check()?;
        let mut state = file.state.lock();
        if offset >= state.size {
            return Ok(None);
        }
        match what {
            Seek::Data => inner.next_data(file, &mut state, offset),
            Seek::Hole => {
                let mut at = offset;
                while at < state.size {
                    match inner.data_end(file, &mut state, at)? {
                        Some(end) => at = end,
                        None => break,
                    }
                }
                Ok(Some(at.min(state.size)))
            }
        }
    }
}

impl Inner {
    fn codecs(&self, ino: u64) -> Result<String, Error> {
        const LOOKS: usize = 16;
        let file = self.held(self.file(ino)?);
        let extents = {
            let mut state = file.state.lock();
            let size = state.size;
            self.extents(&file, &mut state, 0, size)?
        };
        drop(file);
        let extents: Vec<Extent> = extents
            .into_iter()
            .filter(|extent| extent.place != Place::Hole)
            .collect();
        let step = extents.len().div_ceil(LOOKS).max(1);
        let mut parts: Vec<FramePart> = Vec::new();
        for extent in extents.iter().step_by(step) {
            match &extent.place {
                Place::Frame(part) => parts.push(*part),
                Place::Tiles(part) => {
                    let directory = self.frames.directory(part, ino, extent.offset)?;
                    parts.extend(directory.frames(part).take(LOOKS));
                }
                Place::Hole => {}
            }
        }
        let mut seen = std::collections::BTreeSet::new();
        let mut frame = Vec::new();
        for part in parts {
            self.frames.packs.read(&part, &mut frame)?;
            if let Ok(summary) = shale_codec::describe(&frame) {
                let coders: Vec<&str> = summary.coders().collect();
                seen.insert(format!("{}:{}", summary.scheme(), coders.join("+")));
            }
        }
        Ok(seen.into_iter().collect::<Vec<_>>().join(" "))
    }

    pub(crate) fn load_map(&self, file: &File, state: &mut FileState) -> Result<(), Error> {
        if state.map.is_none() {
            let inode = self.namespace.inode(file.ino)?;
            let records = self.namespace.commit_records(file.ino)?;
            state.map = Some(FileMap::load(&self.frames, &inode, records)?);
        }
        Ok(())
    }

    /// Extents of a file between two offsets.
    pub(crate) fn extents(
        &self,
        file: &File,
        state: &mut FileState,
        start: u64,
        end: u64,
    ) -> Result<Vec<Extent>, Error> {
        self.load_map(file, state)?;
        match state.map.as_mut() {
            Some(map) => map.range(&self.frames, start, end),
            None => Err(Error::Poisoned),
        }
    }

    /// Copies what is in memory, fills holes, and returns the extents that cover the rest.
    fn gather(
        &self,
        file: &File,
        state: &mut FileState,
        offset: u64,
        out: &mut [u8],
    ) -> Result<Vec<Extent>, Error> {
        let end = offset + out.len() as u64;
        // Ranges not found in memory yet.
        let mut missing = vec![(offset, end)];
        if !state.chunks.is_empty() {
            let (first, last) = (file.chunk_of(offset), file.chunk_of(end - 1));
            for (&index, chunk) in state.chunks.range(first..=last) {
                if let Some(frozen) = &chunk.frozen {
                    frozen
                        .segs
                        .copy_to(offset, out, |from, to| remove_range(&mut missing, from, to));
                    let (chunk_start, chunk_end) = file.chunk_range(index);
                    for &(start, stop) in frozen.cut.lock().iter() {
                        // Nothing older is below: the map got its hole when the cut was made.
                        let start = start.max(offset).max(chunk_start);
                        let stop = stop.min(end).min(chunk_end);
                        if start < stop {
                            out[(start - offset) as usize..(stop - offset) as usize].fill(0);
                            remove_range(&mut missing, start, stop);
                        }
                    }
                }
                chunk
                    .dirty
                    .copy_to(offset, out, |from, to| remove_range(&mut missing, from, to));
            }
        }
        if missing.is_empty() {
            return Ok(Vec::new());
        }
        let mut wanted = Vec::new();
        for (from, to) in missing {
            let mut at = from;
            for extent in self.extents(file, state, from, to)? {
                if extent.place == Place::Hole {
                    continue;
                }
                out[(at - offset) as usize..(extent.offset - offset) as usize].fill(0);
                at = extent.end();
                wanted.push(extent);
            }
            out[(at - offset) as usize..(to - offset) as usize].fill(0);
        }
        Ok(wanted)
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
            self.frames
                .copy_extent(extent, file.ino, &mut out[at..at + len])?;
        }
        Ok(())
    }

    fn next_data(
        &self,
        file: &File,
        state: &mut FileState,
        offset: u64,
    ) -> Result<Option<u64>, Error> {
        let size = state.size;
        let mut found = size;
        for (_, chunk) in state.chunks.range(file.chunk_of(offset)..) {
            let mut first = |start: u64, len: usize| {
                if start + len as u64 > offset {
                    found = found.min(start.max(offset));
                }
            };
            if let Some(frozen) = &chunk.frozen {
                frozen
                    .segs
                    .iter()
                    .for_each(|(start, piece)| first(start, piece.len()));
            }
            chunk
                .dirty
                .iter()
                .for_each(|(start, piece)| first(start, piece.len()));
            if found < size {
                break;
            }
        }
        self.load_map(file, state)?;
        if let Some(map) = state.map.as_mut()
            && let Some(stored) = map.next_data(&self.frames, offset, found)?
        {
            found = stored;
        }
        Ok((found < size).then_some(found))
    }

    /// Where the data that covers `at` ends; `None` when `at` is in a hole.
    fn data_end(&self, file: &File, state: &mut FileState, at: u64) -> Result<Option<u64>, Error> {
        let index = file.chunk_of(at);
        let (_, chunk_end) = file.chunk_range(index);
        let mut end = None;
        if let Some(chunk) = state.chunks.get(&index) {
            let mut cover = |start: u64, len: usize| {
                let stop = start + len as u64;
                if start <= at && at < stop {
                    end = end.max(Some(stop));
                }
            };
            if let Some(frozen) = &chunk.frozen {
                frozen
                    .segs
                    .iter()
                    .for_each(|(start, piece)| cover(start, piece.len()));
            }
            chunk
                .dirty
                .iter()
                .for_each(|(start, piece)| cover(start, piece.len()));
        }
        for extent in self.extents(file, state, at, chunk_end)? {
            if extent.offset == at && extent.place != Place::Hole {
                end = end.max(Some(extent.end()));
            }
        }
        Ok(end)
    }
}

/// Looks up extents and reads what they stand for, again as long as a pack turns out to be gone:
/// it was collected after its live frames had moved.
pub(crate) fn while_moved<T>(mut look: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    let mut moves = 0;
    loop {
        match look() {
            Err(e) if e.is_gone() && moves < MAX_MOVES => moves += 1,
            // It stays away. That is no ENOENT for somebody whose file is there.
            Err(Error::Io {
                action,
                path,
                source,
            }) if source.kind() == io::ErrorKind::NotFound => {
                return Err(Error::io(action, path)(io::Error::other(
                    source.to_string(),
                )));
            }
            other => return other,
        }
    }
}

/// Takes a range out of a list of ranges.
fn remove_range(ranges: &mut Vec<(u64, u64)>, start: u64, end: u64) {
    if let [(from, to)] = ranges[..]
        && start <= from
        && to <= end
    {
        ranges.clear();
        return;
    }
    *ranges = ranges
        .iter()
        .flat_map(|&(from, to)| [(from, to.min(start)), (from.max(end), to)])
        .filter(|(from, to)| from < to)
        .collect();
}
