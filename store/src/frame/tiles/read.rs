//! Reading bytes of an array from its tiles.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use shale_index::Ino;
use shale_index::extent::{FrameAt, FramePart, TilePart};

use super::TileDirectory;
use crate::Error;
use crate::frame::Frames;
use crate::primitives::atomic::{AtomicUsize, Ordering};
use crate::primitives::{Mutex, thread};

/// Directories kept at most.
const MAX_DIRECTORIES: usize = 256;

/// Directories that were used lately.
#[derive(Debug, Default)]
pub(crate) struct Directories {
    recent: Mutex<HashMap<FrameAt, Arc<TileDirectory>>>,
}

impl Frames {
    /// Tiles that a range crosses and that are neither cached nor being decoded, in the order of
    /// the file.
    pub(crate) fn missing_tiles(
        &self,
        part: &TilePart,
        ino: Ino,
        offset: u64,
        len: u64,
    ) -> Result<Vec<FramePart>, Error> {
        let directory = self.directory(part, ino, offset)?;
        let mut seen = HashSet::new();
        let mut missing = Vec::new();
        let mut last = None;
        let mut at = part.skip;
        while at < part.skip + len {
            let spot = directory.geometry().locate(at);
            if last.replace(spot.tile) != Some(spot.tile) && seen.insert(spot.tile) {
                let frame = directory.frame(part, spot.tile);
                if !self.cache.knows(frame.frame_at()) {
                    missing.push(frame);
                }
            }
            at += spot.run;
        }
        Ok(missing)
    }

    /// Evicts decoded tiles that have their last byte in a range.
    pub(crate) fn forget_tiles(&self, part: &TilePart, ino: Ino, offset: u64, len: u64) {
        let Ok(directory) = self.directory(part, ino, offset) else {
            return;
        };
        let end = part.skip + len;
        let mut at = part.skip;
        while at < end {
            let spot = directory.geometry().locate(at);
            at += spot.run;
            let frame = directory.frame(part, spot.tile);
            if at <= end && spot.at as u64 + spot.run == u64::from(frame.raw_len) {
                self.cache.forget(frame.frame_at());
            }
        }
    }

    /// Decodes the tiles that a range crosses on all cores; a row of an array often crosses many.
    pub(crate) fn decode_ahead(
        &self,
        part: &TilePart,
        ino: Ino,
        offset: u64,
        len: u64,
    ) -> Result<(), Error> {
        let missing = self.missing_tiles(part, ino, offset, len)?;
        let bytes: u64 = missing.iter().map(|frame| u64::from(frame.raw_len)).sum();
        let threads = self.threads.min(missing.len());
        if threads < 2 || bytes > self.cache.limit() / 2 {
            return Ok(());
        }
        self.packs.will_need(&missing);
        let next = AtomicUsize::new(0);
        let decode = || {
            while let Some(frame) = missing.get(next.fetch_add(1, Ordering::Relaxed)) {
                // Another thread may be decoding it. The copy that follows reports errors.
                let begun = self.cache.knows(frame.frame_at());
                if !begun && self.get(frame, ino, offset).is_err() {
                    break;
                }
            }
        };
        thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(decode);
            }
            decode();
        });
        Ok(())
    }

    /// Copies a part of an array from its tiles, which `get` provides.
    pub(crate) fn copy_tiles(
        &self,
        part: &TilePart,
        ino: Ino,
        offset: u64,
        out: &mut [u8],
        mut get: impl FnMut(&FramePart, u64) -> Result<Arc<Vec<u8>>, Error>,
    ) -> Result<(), Error> {
        let directory = self.directory(part, ino, offset)?;
        // A row of the array crosses the same tiles again and again.
        let mut used: HashMap<usize, Arc<Vec<u8>>> = HashMap::new();
        let mut last: Option<(usize, Arc<Vec<u8>>)> = None;
        let mut done = 0;
        while done < out.len() {
            let spot = directory.geometry().locate(part.skip + done as u64);
            let tile = match &mut last {
                Some((number, tile)) if *number == spot.tile => tile,
                last => {
                    let tile = match used.get(&spot.tile) {
                        Some(tile) => Arc::clone(tile),
                        None => {
                            let frame = directory.frame(part, spot.tile);
                            let tile = get(&frame, offset + done as u64)?;
                            used.insert(spot.tile, Arc::clone(&tile));
                            tile
                        }
                    };
                    &mut last.insert((spot.tile, tile)).1
                }
            };
            let len = (spot.run as usize).min(out.len() - done);
            out[done..done + len].copy_from_slice(&tile[spot.at..spot.at + len]);
            done += len;
        }
        Ok(())
    }

    /// The directory of an array of tiles.
    pub(crate) fn directory(
        &self,
        part: &TilePart,
        ino: Ino,
        offset: u64,
    ) -> Result<Arc<TileDirectory>, Error> {
        let key = part.frame_at();
        if let Some(directory) = self.directories.recent.lock().get(&key) {
            return Ok(Arc::clone(directory));
        }
        let raw = self.load(&part.directory(), ino, offset)?;
        let directory = TileDirectory::decode(&raw, part.body)
            .filter(|directory| directory.geometry().len() == part.raw_len)
            .ok_or_else(|| Error::Damaged {
                ino,
                offset,
                pack: part.pack,
                at: part.at,
                detail: "the directory of tiles does not decode".to_owned(),
            })?;
        let directory = Arc::new(directory);
        let mut directories = self.directories.recent.lock();
        if directories.len() >= MAX_DIRECTORIES {
            directories.clear();
        }
        directories.insert(key, Arc::clone(&directory));
        Ok(directory)
    }
}
