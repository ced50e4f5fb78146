//! Frames in and out: encode and append, read and decode, through the cache.

mod cache;
mod encoder;
mod gathered;
mod moved;
mod tiles;

pub(crate) use cache::FrameCache;
pub(crate) use encoder::{FrameBatch, FrameEncoder, FrameSpec};
pub(crate) use gathered::{pieces, put_table};
pub(crate) use moved::while_moved;
pub(crate) use tiles::{Field, Geometry, TileDirectory};

use std::sync::Arc;
use std::time::Instant;

use shale_codec::{Decoder, FrameKind};
use shale_index::Ino;
use shale_index::extent::{Extent, FramePart, Place, TilePart};

use crate::Error;
use crate::memory::BufferPool;
use crate::pack::{Lane, Packs, Pin, entries_of};
use crate::primitives::Mutex;
use tiles::Directories;

/// Length from which a read may cross enough tiles to decode them on all cores.
const MANY_TILES: usize = 64 << 10;

/// The packs of a store, seen as decoded frames.
pub(crate) struct Frames {
    pub(crate) packs: Packs,
    pub(crate) cache: FrameCache,
    /// Buffers of written chunks, and for the first frames that are read.
    pub(crate) pool: BufferPool,
    scratch: Mutex<Vec<Scratch>>,
    /// Threads that one read may decode with.
    pub(crate) threads: usize,
    /// Directories of tiles that were used lately.
    pub(crate) directories: Directories,
}

/// Memory that a decode needs besides its result; kept for the next one.
struct Scratch {
    decoder: Decoder,
    stored: Vec<u8>,
}

impl std::fmt::Debug for Frames {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Frames")
            .field("packs", &self.packs)
            .finish_non_exhaustive()
    }
}

impl Frames {
    pub(crate) fn new(packs: Packs, cache_bytes: u64) -> Self {
        Self {
            pool: BufferPool::default(),
            packs,
            cache: FrameCache::new(cache_bytes),
            scratch: Mutex::default(),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            directories: Directories::default(),
        }
    }

    /// Copies the bytes of an extent of inode `ino`; a hole leaves `out` unchanged.
    pub(crate) fn copy_extent(
        &self,
        extent: &Extent,
        ino: Ino,
        out: &mut [u8],
    ) -> Result<(), Error> {
        if let Place::Tiles(part) = &extent.place
            && out.len() >= MANY_TILES
        {
            self.decode_ahead(part, ino, extent.offset, out.len() as u64)?;
        }
        self.copy_extent_from(extent, ino, out, |part, offset| self.get(part, ino, offset))
    }

    /// The same with frames that `get` provides.
    pub(crate) fn copy_extent_from(
        &self,
        extent: &Extent,
        ino: Ino,
        out: &mut [u8],
        mut get: impl FnMut(&FramePart, u64) -> Result<Arc<Vec<u8>>, Error>,
    ) -> Result<(), Error> {
        match &extent.place {
            Place::Hole => Ok(()),
            Place::Frame(part) => {
                let raw = get(part, extent.offset)?;
                let skip = part.skip as usize;
                out.copy_from_slice(&raw[skip..skip + out.len()]);
                Ok(())
            }
            Place::Tiles(part) => self.copy_tiles(part, ino, extent.offset, out, get),
        }
    }

    /// Frames of an extent that are neither cached nor being decoded.
    pub(crate) fn missing(&self, extent: &Extent, ino: Ino) -> Result<Vec<FramePart>, Error> {
        match &extent.place {
            Place::Hole => Ok(Vec::new()),
            Place::Frame(part) => Ok((!self.cache.knows(part.frame_at()))
                .then_some(*part)
                .into_iter()
                .collect()),
            Place::Tiles(part) => self.missing_tiles(part, ino, extent.offset, extent.len),
        }
    }

    /// Evicts the decoded frames of an extent that a reader has passed completely.
    pub(crate) fn forget(&self, extent: &Extent, ino: Ino) {
        match &extent.place {
            Place::Hole => {}
            Place::Frame(part) => {
                if u64::from(part.skip) + extent.len >= u64::from(part.raw_len) {
                    self.cache.forget(part.frame_at());
                }
            }
            Place::Tiles(part) => self.forget_tiles(part, ino, extent.offset, extent.len),
        }
    }

    /// The decoded frame of `part`, which must hold `offset` of inode `ino`.
    pub(crate) fn get(
        &self,
        part: &FramePart,
        ino: Ino,
        offset: u64,
    ) -> Result<Arc<Vec<u8>>, Error> {
        let counters = &self.packs.counters;
        let mut missed = false;
        let found = self.cache.get(part.frame_at(), || {
            missed = true;
            self.load(part, ino, offset)
        });
        if missed {
            counters.cache_misses.one();
        } else {
            counters.cache_hits.one();
        }
        found
    }

    /// The same without caching it, for passes over a whole file.
    pub(crate) fn get_once(
        &self,
        part: &FramePart,
        ino: Ino,
        offset: u64,
    ) -> Result<Arc<Vec<u8>>, Error> {
        match self.cache.peek(part.frame_at()) {
            Some(raw) => Ok(raw),
            None => self.load(part, ino, offset).map(Arc::new),
        }
    }

    pub(crate) fn load(&self, part: &FramePart, ino: Ino, offset: u64) -> Result<Vec<u8>, Error> {
        let mut scratch = self.scratch.lock().pop().unwrap_or_else(|| Scratch {
            decoder: Decoder::new(),
            stored: Vec::new(),
        });
        let result = self.load_with(&mut scratch, part, ino, offset);
        self.scratch.lock().push(scratch);
        result
    }

    fn load_with(
        &self,
        scratch: &mut Scratch,
        part: &FramePart,
        ino: Ino,
        offset: u64,
    ) -> Result<Vec<u8>, Error> {
        let damaged = |detail: String| Error::Damaged {
            ino,
            offset,
            pack: part.pack,
            at: part.at,
            detail,
        };
        match self.packs.read(part, &mut scratch.stored) {
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::UnexpectedEof => {
                return Err(damaged("the pack ends before it".to_owned()));
            }
            other => other?,
        }
        let len = part.raw_len as usize;
        let reused = self.cache.memory(len).or_else(|| self.pool.memory(len));
        let mut raw = reused.unwrap_or_else(|| Vec::with_capacity(len));
        let header = scratch
            .decoder
            .decode(&scratch.stored, &mut raw)
            .map_err(|e| damaged(e.to_string()))?;
        if header.meta.inode != ino || header.raw_len != part.raw_len {
            return Err(damaged(format!(
                "it holds {} bytes of inode {}, expected {} of {ino}",
                header.raw_len, header.meta.inode, part.raw_len
            )));
        }
        Ok(raw)
    }

    /// Encodes and appends a frame; it is durable after the next sync of the packs. The pin keeps
    /// its pack until the frame has been committed.
    pub(crate) fn append(
        &self,
        encoder: &mut FrameEncoder,
        spec: &FrameSpec<'_>,
        raw: &[u8],
    ) -> Result<(FramePart, Pin), Error> {
        self.make(encoder, spec.kind, raw.len(), |encoder, sequence| {
            encoder.encode(spec, sequence, raw)
        })?;
        let entries = [encoder.entry()];
        let (placed, pin) = self
            .packs
            .append(Lane::FOREGROUND, encoder.frame(), &entries)?;
        let part = FramePart {
            pack: placed.pack,
            at: placed.at,
            frame_len: entries[0].frame_len,
            raw_len: entries[0].raw_len,
            skip: 0,
        };
        Ok((part, pin))
    }

    /// Encodes a frame after those of `out`; returns its length.
    pub(crate) fn encode(
        &self,
        encoder: &mut FrameEncoder,
        spec: &FrameSpec<'_>,
        raw: &[u8],
        out: &mut FrameBatch,
    ) -> Result<u32, Error> {
        self.make(encoder, spec.kind, raw.len(), |encoder, sequence| {
            encoder.encode(spec, sequence, raw)
        })?;
        Ok(encoder.append_to(out))
    }

    /// Counts and numbers a frame of `raw_len` bytes that `make` encodes. For callers that choose
    /// among several frames of the same bytes; others call [`Frames::encode`].
    pub(crate) fn make(
        &self,
        encoder: &mut FrameEncoder,
        kind: FrameKind,
        raw_len: usize,
        make: impl FnOnce(&mut FrameEncoder, u64) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let begun = Instant::now();
        make(encoder, self.packs.next_sequence())?;
        let counted = self.packs.counters.encoded(kind);
        counted.note(raw_len, encoder.frame().len(), begun);
        Ok(())
    }

    /// Appends the frame or the whole array of tiles at `place` unchanged; `None` for a hole.
    pub(crate) fn copy(
        &self,
        place: &Place,
        buf: &mut Vec<u8>,
    ) -> Result<Option<(Place, Pin)>, Error> {
        match place {
            Place::Hole => return Ok(None),
            Place::Frame(part) => self.packs.read(part, buf)?,
            Place::Tiles(part) => {
                self.packs
                    .read_at(part.pack, part.at - part.body, part.stored(), buf)?;
            }
        }
        let (placed, pin) = self
            .packs
            .append(Lane::FOREGROUND, buf, &entries_of(buf)?)?;
        let copy = match place {
            Place::Hole => Place::Hole,
            Place::Frame(part) => Place::Frame(FramePart {
                pack: placed.pack,
                at: placed.at,
                ..*part
            }),
            Place::Tiles(part) => Place::Tiles(TilePart {
                pack: placed.pack,
                at: placed.at + part.body,
                skip: 0,
                ..*part
            }),
        };
        Ok(Some((copy, pin)))
    }
}
