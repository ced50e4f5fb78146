//! Writes a frame: header and directory around a growing payload.
#![forbid(unsafe_code)]

use super::directory::{StreamEntry, directory_len, put_block, put_stream};
use super::header::{FrameHeader, FrameMeta, HEADER_LEN, write_header};
use super::recipe::Recipe;
use super::summary::FrameSummary;
use crate::checksum::hash64;

/// Builds a frame. Space for header and directory is set aside first and filled
/// in while the payload grows behind it.
pub(crate) struct FrameBuilder {
    begin: usize,
    directory_len: usize,
    at: usize,
    pub(crate) summary: FrameSummary,
}

impl FrameBuilder {
    /// Starts a frame at the end of `out`.
    pub(crate) fn begin(recipe: Recipe, blocks: usize, out: &mut Vec<u8>) -> Self {
        let begin = out.len();
        let directory_len = directory_len(&recipe, blocks);
        out.resize(begin + HEADER_LEN + directory_len, 0);
        let bytes = recipe.to_bytes();
        let at = begin + HEADER_LEN;
        out[at..at + bytes.len()].copy_from_slice(&bytes);
        FrameBuilder {
            begin,
            directory_len,
            at: at + bytes.len(),
            summary: FrameSummary::new(&recipe, 0, 0),
        }
    }

    /// Records the raw bytes around the elements.
    pub(crate) fn add_edges(&mut self, head: &[u8], tail: &[u8], out: &mut [u8]) {
        for edge in [head, tail] {
            out[self.at..self.at + edge.len()].copy_from_slice(edge);
            self.at += edge.len();
        }
    }

    /// Begins a block whose raw bytes have this hash.
    pub(crate) fn begin_block(&mut self, hash: u64, out: &mut [u8]) {
        self.at = put_block(out, self.at, hash);
    }

    /// Records a stream that has just been appended to the payload.
    pub(crate) fn add_stream(&mut self, entry: &StreamEntry, out: &mut [u8]) {
        self.at = put_stream(out, self.at, entry);
        if entry.raw_len > 0 {
            self.summary.add(entry.coder);
        }
    }

    /// Fills in the header: the frame is complete.
    pub(crate) fn seal(&mut self, meta: &FrameMeta, raw: &[u8], out: &mut [u8]) {
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
