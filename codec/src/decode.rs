//! A frame back to its chunk.
#![forbid(unsafe_code)]

use crate::checksum::hash64;
use crate::frame::{Directory, FrameHeader, NumberMap, Scheme, parse_header};
use crate::stream::{Filter, StreamDecoder};
use crate::{Error, shuffle};

/// Turns frames into chunks. Keeps its scratch memory: make one per thread.
pub struct Decoder {
    streams: StreamDecoder,
    columns: Vec<u8>,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// A decoder without scratch memory yet.
    pub fn new() -> Self {
        Decoder {
            streams: StreamDecoder::new(),
            columns: Vec::new(),
        }
    }

    /// Replaces the contents of `out` by the whole chunk, every checksum verified.
    pub fn decode(&mut self, frame: &[u8], out: &mut Vec<u8>) -> Result<FrameHeader, Error> {
        out.clear();
        let header = parse_header(frame)?;
        self.decode_part(&header, frame, 0, header.raw_len as usize, out)?;
        Ok(header)
    }

    /// Replaces the contents of `out` by `len` bytes of the chunk from `start`
    /// on. Only the segments that hold them are decoded, and verified.
    pub fn decode_range(
        &mut self,
        frame: &[u8],
        start: usize,
        len: usize,
        out: &mut Vec<u8>,
    ) -> Result<FrameHeader, Error> {
        out.clear();
        let header = parse_header(frame)?;
        self.decode_part(&header, frame, start, len, out)?;
        Ok(header)
    }

    fn decode_part(
        &mut self,
        header: &FrameHeader,
        frame: &[u8],
        start: usize,
        len: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let result = self.fill(header, frame, start, len, out);
        if result.is_err() {
            out.clear();
        }
        result
    }

    fn fill(
        &mut self,
        header: &FrameHeader,
        frame: &[u8],
        start: usize,
        len: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let raw_len = header.raw_len as usize;
        let directory = Directory::parse(header, frame)?;
        let outside = Error::Range {
            start,
            len,
            raw_len,
        };
        let end = start
            .checked_add(len)
            .filter(|&end| end <= raw_len)
            .ok_or(outside)?;
        let recipe = &directory.recipe;
        if recipe.scheme == Scheme::Constant {
            if !directory.payload.is_empty() {
                return Err(Error::Malformed("constant frame with a payload"));
            }
            let width = directory.head.len();
            out.extend(directory.head.iter().cycle().skip(start % width).take(len));
            return Ok(());
        }

        let head = directory.head;
        if start < head.len() {
            out.extend_from_slice(&head[start..end.min(head.len())]);
        }
        let mut payload = directory.payload;
        let mut begin = head.len();
        for segment in 0..directory.segments() {
            let raw = directory.segment_raw_len(segment);
            let (stored, rest) = payload
                .split_at_checked(directory.segment_stored_len(segment)?)
                .ok_or(Error::Malformed("payload ends early"))?;
            payload = rest;
            let from = start.clamp(begin, begin + raw) - begin;
            let to = end.clamp(begin, begin + raw) - begin;
            if from < to {
                self.segment(&directory, segment, stored, from, to, out)?;
            }
            begin += raw;
        }
        if !payload.is_empty() {
            return Err(Error::Malformed("payload goes on behind the last segment"));
        }
        let tail_end = begin + directory.tail.len();
        if end > begin {
            let from = start.clamp(begin, tail_end) - begin;
            out.extend_from_slice(&directory.tail[from..end - begin]);
        }
        if out.len() != len {
            return Err(Error::Malformed("chunk of unexpected length"));
        }
        Ok(())
    }

    /// Appends bytes `from..to` of one segment.
    fn segment(
        &mut self,
        directory: &Directory<'_>,
        segment: usize,
        stored: &[u8],
        from: usize,
        to: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let raw = directory.segment_raw_len(segment);
        let begin = out.len();
        if directory.recipe.scheme == Scheme::Verbatim {
            verify(directory, segment, stored)?;
            out.extend_from_slice(&stored[from..to]);
            return Ok(());
        }
        if directory.recipe.map != NumberMap::Bytes || directory.recipe.scheme != Scheme::Columns {
            return Err(Error::Malformed("unsupported recipe"));
        }
        let width = directory.recipe.width as usize;
        let n = raw / width;
        self.columns.resize(raw, 0);
        let mut rest = stored;
        for (c, column) in self.columns.chunks_exact_mut(n).enumerate() {
            let entry = directory.stream(segment, c)?;
            let (stored, behind) = rest.split_at(entry.stored_len as usize);
            rest = behind;
            self.streams.decode(&entry, stored, column)?;
            if entry.filter == Filter::Delta {
                shuffle::undelta(column);
            }
        }
        out.resize(begin + raw, 0);
        shuffle::unshuffle(width, &self.columns, &mut out[begin..]);
        verify(directory, segment, &out[begin..])?;
        out.truncate(begin + to);
        out.drain(begin..begin + from);
        Ok(())
    }
}

fn verify(directory: &Directory<'_>, segment: usize, raw: &[u8]) -> Result<(), Error> {
    let expected = directory.segment_hash(segment);
    let found = hash64(raw);
    if expected != found {
        return Err(Error::Checksum {
            part: "raw data",
            expected,
            found,
        });
    }
    Ok(())
}
