//! A chunk to a frame.
#![forbid(unsafe_code)]

use crate::checksum::hash64;
use crate::frame::{
    FrameHeader, FrameMeta, HEADER_LEN, MAX_RAW_LEN, NumberMap, Predictor, Recipe, Scheme,
    directory_len, put_segment, put_stream, write_header,
};
use crate::plan::{VERBATIM_SEGMENT, plan};
use crate::stream::{Fate, Filter, StreamEncoder};
use crate::{Effort, Error, FrameSummary, Hint, shuffle};

/// Turns chunks into frames. Keeps its scratch memory: make one per thread.
pub struct Encoder {
    streams: StreamEncoder,
    columns: Vec<u8>,
    deltas: Vec<u8>,
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Encoder {
    /// An encoder without scratch memory yet.
    pub fn new() -> Self {
        Encoder {
            streams: StreamEncoder::new(),
            columns: Vec::new(),
            deltas: Vec::new(),
        }
    }

    /// Appends one frame that holds `raw` to `out`. On an error `out` is as before.
    pub fn encode(
        &mut self,
        meta: &FrameMeta,
        hint: &Hint<'_>,
        effort: Effort,
        raw: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<FrameSummary, Error> {
        if raw.len() > MAX_RAW_LEN {
            return Err(Error::ChunkTooLarge {
                len: raw.len(),
                max: MAX_RAW_LEN,
            });
        }
        let begin = out.len();
        let result = self.encode_at(meta, hint, effort, raw, out);
        if result.is_err() {
            out.truncate(begin);
        }
        result
    }

    fn encode_at(
        &mut self,
        meta: &FrameMeta,
        hint: &Hint<'_>,
        effort: Effort,
        raw: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<FrameSummary, Error> {
        let begin = out.len();
        if raw.is_empty() {
            let mut frame = Draft::begin(Recipe::verbatim(0), 0, out);
            frame.seal(meta, raw, out);
            return Ok(frame.summary);
        }
        if let Some(width) = constant_width(raw) {
            let mut recipe = Recipe::verbatim(0);
            recipe.scheme = Scheme::Constant;
            recipe.width = width as u8;
            recipe.head = width as u8;
            let mut frame = Draft::begin(recipe, 0, out);
            frame.edges(&raw[..width], &[], out);
            frame.seal(meta, raw, out);
            return Ok(frame.summary);
        }
        let recipe = plan(hint, effort, raw);
        if recipe.scheme == Scheme::Columns {
            let summary = self.encode_columns(meta, recipe, effort, raw, out)?;
            let segments = raw.len().div_ceil(VERBATIM_SEGMENT);
            if out.len() - begin
                < HEADER_LEN + directory_len(&Recipe::verbatim(0), segments) + raw.len()
            {
                return Ok(summary);
            }
            out.truncate(begin);
        }
        Ok(encode_verbatim(meta, raw, out))
    }

    fn encode_columns(
        &mut self,
        meta: &FrameMeta,
        recipe: Recipe,
        effort: Effort,
        raw: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<FrameSummary, Error> {
        debug_assert!(recipe.map == NumberMap::Bytes && recipe.predictor == Predictor::None);
        let (head, rest) = raw.split_at(recipe.head as usize);
        let (body, tail) = rest.split_at(rest.len() - recipe.tail as usize);
        let segments = body.len().div_ceil(recipe.segment_len as usize);
        let mut frame = Draft::begin(recipe, segments, out);
        frame.edges(head, tail, out);
        let width = recipe.width as usize;
        for segment in body.chunks(recipe.segment_len as usize) {
            frame.segment(hash64(segment), out);
            self.columns.resize(segment.len(), 0);
            shuffle::shuffle(width, segment, &mut self.columns);
            let n = segment.len() / width;
            for column in self.columns.chunks_exact(n) {
                let (fate, filter) = match effort {
                    Effort::Lz4 => (Fate::Lz4, Filter::None),
                    Effort::Zstd(level) => (Fate::Zstd(level), Filter::None),
                    _ => {
                        self.deltas.resize(n, 0);
                        shuffle::delta(column, &mut self.deltas);
                        let plain = entropy(column);
                        let delta = entropy(&self.deltas);
                        let filter = if delta < plain {
                            Filter::Delta
                        } else {
                            Filter::None
                        };
                        let fate = if plain.min(delta) > 7.9 {
                            Fate::Raw
                        } else {
                            Fate::Entropy
                        };
                        let fate = match effort {
                            Effort::Balanced if fate == Fate::Entropy => Fate::Zstd(1),
                            Effort::Dense => Fate::Zstd(9),
                            _ => fate,
                        };
                        (
                            fate,
                            if fate == Fate::Raw {
                                Filter::None
                            } else {
                                filter
                            },
                        )
                    }
                };
                let bytes = if filter == Filter::Delta {
                    &self.deltas
                } else {
                    column
                };
                let entry = self.streams.encode(fate, filter, bytes, out)?;
                frame.stream(&entry, out);
            }
        }
        frame.seal(meta, raw, out);
        Ok(frame.summary)
    }
}

fn entropy(bytes: &[u8]) -> f32 {
    let mut counts = [0u32; 256];
    for &byte in bytes {
        counts[byte as usize] += 1;
    }
    let total = bytes.len() as f32;
    counts
        .iter()
        .filter(|&&c| c > 0)
        .map(|&c| -(c as f32) * (c as f32 / total).log2())
        .sum::<f32>()
        / total
}

fn encode_verbatim(meta: &FrameMeta, raw: &[u8], out: &mut Vec<u8>) -> FrameSummary {
    let segments = raw.len().div_ceil(VERBATIM_SEGMENT);
    let mut frame = Draft::begin(Recipe::verbatim(VERBATIM_SEGMENT as u32), segments, out);
    out.reserve(raw.len());
    for segment in raw.chunks(VERBATIM_SEGMENT) {
        frame.segment(hash64(segment), out);
        out.extend_from_slice(segment);
    }
    frame.summary.add(crate::stream::Coder::Raw);
    frame.seal(meta, raw, out);
    frame.summary
}

/// The width of the element that fills the whole chunk, if one does.
fn constant_width(raw: &[u8]) -> Option<usize> {
    let repeats = |width: usize| raw.len() >= width && raw[width..] == raw[..raw.len() - width];
    if !repeats(8.min(raw.len())) {
        return None;
    }
    [1, 2, 4, 8].into_iter().find(|&width| repeats(width))
}

/// A frame being written: space for header and directory is set aside first
/// and filled in as the payload grows behind it.
struct Draft {
    begin: usize,
    directory_len: usize,
    at: usize,
    summary: FrameSummary,
}

impl Draft {
    fn begin(recipe: Recipe, segments: usize, out: &mut Vec<u8>) -> Self {
        let begin = out.len();
        let directory_len = directory_len(&recipe, segments);
        out.resize(begin + HEADER_LEN + directory_len, 0);
        let bytes = recipe.to_bytes();
        let at = begin + HEADER_LEN;
        out[at..at + bytes.len()].copy_from_slice(&bytes);
        Draft {
            begin,
            directory_len,
            at: at + bytes.len(),
            summary: FrameSummary::new(&recipe, 0, 0),
        }
    }

    fn edges(&mut self, head: &[u8], tail: &[u8], out: &mut [u8]) {
        for edge in [head, tail] {
            out[self.at..self.at + edge.len()].copy_from_slice(edge);
            self.at += edge.len();
        }
    }

    fn segment(&mut self, hash: u64, out: &mut [u8]) {
        self.at = put_segment(out, self.at, hash);
    }

    fn stream(&mut self, entry: &crate::frame::StreamEntry, out: &mut [u8]) {
        self.at = put_stream(out, self.at, entry);
        self.summary.add(entry.coder);
    }

    fn seal(&mut self, meta: &FrameMeta, raw: &[u8], out: &mut [u8]) {
        let directory = self.begin + HEADER_LEN..self.begin + HEADER_LEN + self.directory_len;
        debug_assert_eq!(self.at, directory.end);
        let header = FrameHeader {
            meta: *meta,
            raw_len: raw.len() as u32,
            frame_len: (out.len() - self.begin) as u32,
            directory_len: self.directory_len as u32,
            directory_hash: hash64(&out[directory]),
        };
        out[self.begin..self.begin + HEADER_LEN].copy_from_slice(&write_header(&header));
        self.summary.raw_len = header.raw_len;
        self.summary.frame_len = header.frame_len;
    }
}
