//! Frames in and out: encode and append, read and decode, through the cache.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use shale_codec::{Decoder, Effort, Encoder, FrameKind, FrameMeta, Hint};
use shale_index::extent::{Extent, FramePart, Place, TilePart};

use crate::Error;
use crate::cache::FrameCache;
use crate::pack::{Lane, Packs};
use crate::pins::Pin;
use crate::spare::Spare;
use crate::sync::Mutex;
use crate::tiles::Directories;
use crate::worth::Worth;

/// A read of so many bytes may cross enough tiles to decode them on all cores.
const MANY_TILES: usize = 64 << 10;

/// The packs of a store, seen as decoded frames.
pub(crate) struct Frames {
    pub(crate) packs: Packs,
    pub(crate) cache: FrameCache,
    /// Memory of written chunks, and for the first frames that are read.
    pub(crate) spare: Spare,
    scratch: Mutex<Vec<Scratch>>,
    /// Threads that one read may decode with.
    pub(crate) threads: usize,
    /// Frames and stored bytes that were read from packs to be decoded.
    read: (AtomicU64, AtomicU64),
    /// Directories of tiles that were used lately.
    pub(crate) directories: Directories,
}

/// What a decode needs besides its result; kept for the next one.
struct Scratch {
    decoder: Decoder,
    stored: Vec<u8>,
}

/// What an encode needs; one for each worker.
pub(crate) struct FrameEncoder {
    encoder: Encoder,
    frame: Vec<u8>,
    /// A frame that may be better than the one made after it.
    kept: Vec<u8>,
    decoder: Decoder,
    decoded: Vec<u8>,
}

impl std::fmt::Debug for Frames {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Frames")
            .field("packs", &self.packs)
            .finish_non_exhaustive()
    }
}

impl FrameEncoder {
    pub(crate) fn new() -> Self {
        Self {
            encoder: Encoder::new(),
            frame: Vec::new(),
            kept: Vec::new(),
            decoder: Decoder::new(),
            decoded: Vec::new(),
        }
    }

    /// Makes a frame of `raw` that is known to decode to `raw` again. Once the only copy is the
    /// compressed one, a mistake of the encoder could not be made good any more.
    pub(crate) fn encode(
        &mut self,
        meta: &FrameMeta,
        hint: &Hint<'_>,
        effort: Effort,
        raw: &[u8],
    ) -> Result<(), Error> {
        self.frame.clear();
        let made = self
            .encoder
            .encode(meta, hint, effort, raw, &mut self.frame);
        let sound = match &made {
            Ok(summary) if summary.scheme() == "verbatim" => true,
            Ok(_) => {
                self.decoder.decode(&self.frame, &mut self.decoded).is_ok() && self.decoded == raw
            }
            Err(_) => false,
        };
        if !sound {
            tracing::error!(
                inode = meta.inode,
                offset = meta.offset,
                "a chunk could not be encoded with effort {effort} and is stored as it is; \
                 please report this"
            );
            self.frame.clear();
            self.encoder
                .encode(meta, &Hint::Unknown, Effort::None, raw, &mut self.frame)?;
        }
        Ok(())
    }
}

impl FrameEncoder {
    /// Length of the frame made last.
    pub(crate) fn len(&self) -> usize {
        self.frame.len()
    }

    /// Keeps the frame made last while another is made; returns its length.
    pub(crate) fn keep(&mut self) -> usize {
        std::mem::swap(&mut self.frame, &mut self.kept);
        self.kept.len()
    }

    /// Takes the frame that was kept instead of the one made last.
    pub(crate) fn bring_back(&mut self) {
        std::mem::swap(&mut self.frame, &mut self.kept);
    }

    /// Decodes the frame made last once more and returns it as it is stored, for those who
    /// measure.
    pub(crate) fn decode_again(&mut self) -> Result<&[u8], Error> {
        self.decoder.decode(&self.frame, &mut self.decoded)?;
        Ok(&self.frame)
    }
}

impl Frames {
    pub(crate) fn new(packs: Packs, cache_bytes: u64) -> Self {
        Self {
            spare: Spare::default(),
            packs,
            cache: FrameCache::new(cache_bytes),
            scratch: Mutex::default(),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            read: Default::default(),
            directories: Directories::default(),
        }
    }

    /// Frames and stored bytes that were read from packs to be decoded.
    pub(crate) fn read_so_far(&self) -> (u64, u64) {
        (
            self.read.0.load(Ordering::Relaxed),
            self.read.1.load(Ordering::Relaxed),
        )
    }

    /// Copies what an extent of inode `ino` stands for; a hole leaves `out` as it is.
    pub(crate) fn copy_extent(
        &self,
        extent: &Extent,
        ino: u64,
        out: &mut [u8],
    ) -> Result<(), Error> {
        if let Place::Tiles(part) = &extent.place
            && out.len() >= MANY_TILES
        {
            self.decode_ahead(part, ino, extent.offset, out.len() as u64)?;
        }
        self.copy_extent_from(extent, ino, out, |part, offset| self.get(part, ino, offset))
    }

    /// The same with frames that `get` finds.
    pub(crate) fn copy_extent_from(
        &self,
        extent: &Extent,
        ino: u64,
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

    /// Frames of an extent that nobody has decoded or decodes.
    pub(crate) fn missing(&self, extent: &Extent, ino: u64) -> Result<Vec<FramePart>, Error> {
        match &extent.place {
            Place::Hole => Ok(Vec::new()),
            Place::Frame(part) => Ok((!self.cache.knows((part.pack, part.at)))
                .then_some(*part)
                .into_iter()
                .collect()),
            Place::Tiles(part) => self.missing_tiles(part, ino, extent.offset, extent.len),
        }
    }

    /// Lets go of the decoded frames of an extent that a reader has passed, if it has passed the
    /// whole of them.
    pub(crate) fn forget(&self, extent: &Extent, ino: u64) {
        match &extent.place {
            Place::Hole => {}
            Place::Frame(part) => {
                if u64::from(part.skip) + extent.len >= u64::from(part.raw_len) {
                    self.cache.forget((part.pack, part.at));
                }
            }
            Place::Tiles(part) => self.forget_tiles(part, ino, extent.offset, extent.len),
        }
    }

    /// The decoded frame that `part` is of, which must hold `offset` of inode `ino`.
    pub(crate) fn get(
        &self,
        part: &FramePart,
        ino: u64,
        offset: u64,
    ) -> Result<Arc<Vec<u8>>, Error> {
        let counters = &self.packs.counters;
        let mut missed = false;
        let found = self.cache.get((part.pack, part.at), || {
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

    /// The same without keeping it for others, for passes over a whole file.
    pub(crate) fn get_once(
        &self,
        part: &FramePart,
        ino: u64,
        offset: u64,
    ) -> Result<Arc<Vec<u8>>, Error> {
        match self.cache.peek((part.pack, part.at)) {
            Some(raw) => Ok(raw),
            None => self.load(part, ino, offset).map(Arc::new),
        }
    }

    pub(crate) fn load(&self, part: &FramePart, ino: u64, offset: u64) -> Result<Vec<u8>, Error> {
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
        ino: u64,
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
        self.read.0.fetch_add(1, Ordering::Relaxed);
        self.read
            .1
            .fetch_add(u64::from(part.frame_len), Ordering::Relaxed);
        let len = part.raw_len as usize;
        let reused = self.cache.memory(len).or_else(|| self.spare.memory(len));
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

    /// Encodes and appends a frame; not durable before the packs are synced. The pin keeps its
    /// pack until the frame has been committed.
    pub(crate) fn put(
        &self,
        encoder: &mut FrameEncoder,
        kind: FrameKind,
        ino: u64,
        offset: u64,
        effort: Effort,
        raw: &[u8],
    ) -> Result<(FramePart, Pin), Error> {
        let owner = (kind, ino, offset);
        self.put_hinted(encoder, owner, &Hint::Unknown, effort, raw)
    }

    /// The same, when something is known of the bytes.
    pub(crate) fn put_hinted(
        &self,
        encoder: &mut FrameEncoder,
        owner: (FrameKind, u64, u64),
        hint: &Hint<'_>,
        effort: Effort,
        raw: &[u8],
    ) -> Result<(FramePart, Pin), Error> {
        self.encode(encoder, owner, hint, effort, raw)?;
        let (appended, pin) = self.packs.append(Lane::FOREGROUND, &encoder.frame)?;
        let part = FramePart {
            pack: appended.pack,
            at: appended.at,
            frame_len: encoder.frame.len() as u32,
            raw_len: raw.len() as u32,
            skip: 0,
        };
        Ok((part, pin))
    }

    fn encode(
        &self,
        encoder: &mut FrameEncoder,
        owner: (FrameKind, u64, u64),
        hint: &Hint<'_>,
        effort: Effort,
        raw: &[u8],
    ) -> Result<(), Error> {
        let begun = Instant::now();
        encoder.encode(&self.meta(owner), hint, effort, raw)?;
        let counted = self.packs.counters.encoded(owner.0);
        counted.note(raw.len(), encoder.frame.len(), begun);
        Ok(())
    }

    fn meta(&self, (kind, inode, offset): (FrameKind, u64, u64)) -> FrameMeta {
        FrameMeta {
            kind,
            inode,
            offset,
            sequence: self.packs.next_sequence(),
        }
    }

    /// Encodes a frame behind `out`; returns its length.
    pub(crate) fn encode_into(
        &self,
        encoder: &mut FrameEncoder,
        owner: (FrameKind, u64, u64),
        hint: &Hint<'_>,
        effort: Effort,
        raw: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<u32, Error> {
        self.encode(encoder, owner, hint, effort, raw)?;
        out.extend_from_slice(&encoder.frame);
        Ok(encoder.frame.len() as u32)
    }

    /// Encodes a tile behind `out`, as dense as it is worth; returns its length.
    pub(crate) fn encode_tile(
        &self,
        encoder: &mut FrameEncoder,
        owner: (FrameKind, u64, u64),
        hint: &Hint<'_>,
        (effort, worth): (Effort, &mut Worth),
        raw: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<u32, Error> {
        let begun = Instant::now();
        worth.encode(encoder, &self.meta(owner), hint, effort, raw)?;
        let counted = self.packs.counters.encoded(owner.0);
        counted.note(raw.len(), encoder.frame.len(), begun);
        out.extend_from_slice(&encoder.frame);
        Ok(encoder.frame.len() as u32)
    }

    /// Appends a whole array of tiles as it is stored elsewhere.
    pub(crate) fn copy_array(
        &self,
        part: &TilePart,
        buf: &mut Vec<u8>,
    ) -> Result<(TilePart, Pin), Error> {
        self.packs
            .read_at(part.pack, part.at - part.body, part.stored(), buf)?;
        let (appended, pin) = self.packs.append(Lane::FOREGROUND, buf)?;
        Ok((
            TilePart {
                pack: appended.pack,
                at: appended.at + part.body,
                skip: 0,
                ..*part
            },
            pin,
        ))
    }

    /// Appends a frame as it is stored elsewhere.
    pub(crate) fn copy(
        &self,
        part: &FramePart,
        buf: &mut Vec<u8>,
    ) -> Result<(FramePart, Pin), Error> {
        self.packs.read(part, buf)?;
        let (appended, pin) = self.packs.append(Lane::FOREGROUND, buf)?;
        Ok((
            FramePart {
                pack: appended.pack,
                at: appended.at,
                ..*part
            },
            pin,
        ))
    }
}
