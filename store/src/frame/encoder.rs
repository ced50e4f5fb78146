//! Making frames.

use shale_codec::{Decoder, Effort, Encoder, FrameKind, FrameMeta, Hint, parse_header};
use shale_index::Ino;

use crate::Error;
use crate::pack::DirectoryEntry;

/// Description of a frame: what it is and how to encode it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameSpec<'a> {
    pub(crate) kind: FrameKind,
    /// The file that it belongs to.
    pub(crate) ino: Ino,
    /// Where in the file its first byte is.
    pub(crate) offset: u64,
    /// What is known about the bytes.
    pub(crate) hint: Hint<'a>,
    pub(crate) effort: Effort,
}

impl FrameSpec<'_> {
    fn meta(&self, sequence: u64) -> FrameMeta {
        FrameMeta {
            kind: self.kind,
            inode: self.ino,
            offset: self.offset,
            sequence,
        }
    }
}

/// Frames that will be contiguous in a pack.
#[derive(Clone, Debug, Default)]
pub(crate) struct FrameBatch {
    bytes: Vec<u8>,
    entries: Vec<DirectoryEntry>,
}

impl FrameBatch {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
    }

    /// The frames as they are stored.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Their entries in the directory of the pack, with offsets relative to the first frame.
    pub(crate) fn entries(&self) -> &[DirectoryEntry] {
        &self.entries
    }

    /// Length of the frames as they are stored.
    pub(crate) fn len(&self) -> u64 {
        self.bytes.len() as u64
    }
}

/// Encodes frames. Each worker has its own; it keeps its buffers and the plans that worked best.
pub(crate) struct FrameEncoder {
    encoder: Encoder,
    /// The frame made last.
    frame: Vec<u8>,
    entry: DirectoryEntry,
    /// A frame that may be better than the next one.
    kept: Vec<u8>,
    decoder: Decoder,
    decoded: Vec<u8>,
}

impl FrameEncoder {
    pub(crate) fn new() -> Self {
        Self {
            encoder: Encoder::new(),
            frame: Vec::new(),
            entry: DirectoryEntry::EMPTY,
            kept: Vec::new(),
            decoder: Decoder::new(),
            decoded: Vec::new(),
        }
    }

    /// Encodes `raw` into a frame that decodes to `raw` again: the frame will be the only copy, so
    /// a fault of the encoder must be found now.
    pub(crate) fn encode(
        &mut self,
        spec: &FrameSpec<'_>,
        sequence: u64,
        raw: &[u8],
    ) -> Result<(), Error> {
        let meta = spec.meta(sequence);
        self.frame.clear();
        let made = self
            .encoder
            .encode(&meta, &spec.hint, spec.effort, raw, &mut self.frame);
        let sound = match &made {
            Ok(summary) if summary.scheme() == "verbatim" => true,
            Ok(_) => {
                self.decoder.decode(&self.frame, &mut self.decoded).is_ok() && self.decoded == raw
            }
            Err(_) => false,
        };
        if !sound {
            tracing::error!(
                inode = spec.ino,
                offset = spec.offset,
                "a chunk could not be encoded with effort {} and is stored raw; please report \
                 this with the log",
                spec.effort
            );
            self.frame.clear();
            self.encoder
                .encode(&meta, &Hint::Unknown, Effort::None, raw, &mut self.frame)?;
        }
        self.entry = DirectoryEntry {
            at: 0,
            frame_len: self.frame.len() as u32,
            raw_len: raw.len() as u32,
            meta,
        };
        debug_assert!(
            parse_header(&self.frame).is_ok_and(|h| DirectoryEntry::new(0, &h) == self.entry)
        );
        Ok(())
    }

    /// The frame made last.
    pub(crate) fn frame(&self) -> &[u8] {
        &self.frame
    }

    /// The entry of the last frame in the directory of its pack.
    pub(crate) fn entry(&self) -> DirectoryEntry {
        self.entry
    }

    /// Appends the frame made last to a batch; returns its length.
    pub(crate) fn append_to(&self, batch: &mut FrameBatch) -> u32 {
        let at = batch.len();
        batch.bytes.extend_from_slice(&self.frame);
        batch.entries.push(DirectoryEntry { at, ..self.entry });
        self.entry.frame_len
    }

    /// Keeps the frame made last while another is made; returns its length.
    pub(crate) fn keep(&mut self) -> usize {
        std::mem::swap(&mut self.frame, &mut self.kept);
        self.kept.len()
    }

    /// Takes the frame that was kept instead of the last one. Both hold the same bytes.
    pub(crate) fn bring_back(&mut self) {
        std::mem::swap(&mut self.frame, &mut self.kept);
        self.entry.frame_len = self.frame.len() as u32;
    }

    /// Decodes the frame made last once more and returns it as it is stored, for a caller that
    /// measures.
    pub(crate) fn decode_again(&mut self) -> Result<&[u8], Error> {
        self.decoder.decode(&self.frame, &mut self.decoded)?;
        Ok(&self.frame)
    }
}
