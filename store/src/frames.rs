//! Frames in and out: encode and append, read and decode, through the cache.

use std::sync::Arc;

use parking_lot::Mutex;
use shale_codec::{Decoder, Effort, Encoder, FrameKind, FrameMeta, Hint};
use shale_index::extent::FramePart;

use crate::Error;
use crate::cache::FrameCache;
use crate::pack::Packs;
use crate::pins::Pin;

/// The packs of a store, seen as decoded frames.
pub(crate) struct Frames {
    pub(crate) packs: Packs,
    pub(crate) cache: FrameCache,
    scratch: Mutex<Vec<Scratch>>,
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
            decoder: Decoder::new(),
            decoded: Vec::new(),
        }
    }

    /// Makes a frame of `raw` that is known to decode to `raw` again. Once the only copy is the
    /// compressed one, a mistake of the encoder could not be made good any more.
    fn encode(&mut self, meta: &FrameMeta, effort: Effort, raw: &[u8]) -> Result<(), Error> {
        self.frame.clear();
        let made = self
            .encoder
            .encode(meta, &Hint::Unknown, effort, raw, &mut self.frame);
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

impl Frames {
    pub(crate) fn new(packs: Packs, cache_bytes: u64) -> Self {
        Self {
            packs,
            cache: FrameCache::new(cache_bytes),
            scratch: Mutex::default(),
        }
    }

    /// The decoded frame that `part` is of, which must hold `offset` of inode `ino`.
    pub(crate) fn get(
        &self,
        part: &FramePart,
        ino: u64,
        offset: u64,
    ) -> Result<Arc<Vec<u8>>, Error> {
        self.cache
            .get((part.pack, part.at), || self.load(part, ino, offset))
    }

    fn load(&self, part: &FramePart, ino: u64, offset: u64) -> Result<Vec<u8>, Error> {
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
        let mut raw = Vec::with_capacity(part.raw_len as usize);
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
        let sequence = self.packs.next_sequence();
        let meta = FrameMeta {
            kind,
            inode: ino,
            offset,
            sequence,
        };
        encoder.encode(&meta, effort, raw)?;
        let (appended, pin) = self.packs.append(&encoder.frame)?;
        let part = FramePart {
            pack: appended.pack,
            at: appended.at,
            frame_len: encoder.frame.len() as u32,
            raw_len: raw.len() as u32,
            skip: 0,
        };
        Ok((part, pin))
    }

    /// Appends a frame as it is stored elsewhere.
    pub(crate) fn copy(
        &self,
        part: &FramePart,
        buf: &mut Vec<u8>,
    ) -> Result<(FramePart, Pin), Error> {
        self.packs.read(part, buf)?;
        let (appended, pin) = self.packs.append(buf)?;
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
