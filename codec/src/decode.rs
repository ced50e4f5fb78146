//! A frame back to its chunk.
#![forbid(unsafe_code)]

use crate::checksum::hash64;
use crate::decimal::FloatWord;
use crate::exceptions::Exceptions;
use crate::frame::{Directory, FrameHeader, NumberMap, Scheme, StreamEntry, parse_header};
use crate::numeric::{Lane, Lanes, expand, expand_columns, is_local, with_lane};
use crate::residual::{self, ResidualScratch};
use crate::stream::{self, Coder, Filter, StreamDecoder};
use crate::{Error, exceptions, shuffle, simd};

/// Turns frames into chunks. Keeps its scratch memory: make one per thread.
pub struct Decoder {
    lanes: Lanes,
    work: Work,
    /// A segment of which only a part is wanted.
    whole: Vec<u8>,
}

/// Scratch memory that does not depend on the element's width.
struct Work {
    streams: StreamDecoder,
    residuals: ResidualScratch,
    columns: Vec<u8>,
    side: Vec<u8>,
    excepted: Vec<u8>,
    exceptions: Exceptions,
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
            lanes: Lanes::default(),
            work: Work {
                streams: StreamDecoder::new(),
                residuals: ResidualScratch::default(),
                columns: Vec::new(),
                side: Vec::new(),
                excepted: Vec::new(),
                exceptions: Exceptions::default(),
            },
            whole: Vec::new(),
        }
    }

    /// Replaces the contents of `out` by the whole chunk, every checksum verified.
    pub fn decode(&mut self, frame: &[u8], out: &mut Vec<u8>) -> Result<FrameHeader, Error> {
        let header = parse_header(frame).inspect_err(|_| out.clear())?;
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
        let header = parse_header(frame).inspect_err(|_| out.clear())?;
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
        // What `out` held before is overwritten, not cleared first.
        out.resize(len, 0);
        let mut target = &mut out[..];
        let mut next = |len: usize| -> Result<&mut [u8], Error> {
            target
                .split_off_mut(..len)
                .ok_or(Error::Malformed("chunk of unexpected length"))
        };
        if directory.recipe.scheme == Scheme::Constant {
            if !directory.payload.is_empty() {
                return Err(Error::Malformed("constant frame with a payload"));
            }
            repeat(directory.head, start, next(len)?);
            return Ok(());
        }

        let head = directory.head;
        if start < head.len() {
            let part = &head[start..end.min(head.len())];
            next(part.len())?.copy_from_slice(part);
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
                self.segment(&directory, segment, stored, from, next(to - from)?)?;
            }
            begin += raw;
        }
        if !payload.is_empty() {
            return Err(Error::Malformed("payload goes on behind the last segment"));
        }
        let tail_end = begin + directory.tail.len();
        if end > begin {
            let from = start.clamp(begin, tail_end) - begin;
            let part = &directory.tail[from..end - begin];
            next(part.len())?.copy_from_slice(part);
        }
        if !target.is_empty() {
            return Err(Error::Malformed("chunk of unexpected length"));
        }
        Ok(())
    }

    /// Fills `target` from byte `from` of a segment on.
    fn segment(
        &mut self,
        directory: &Directory<'_>,
        segment: usize,
        stored: &[u8],
        from: usize,
        target: &mut [u8],
    ) -> Result<(), Error> {
        let raw = directory.segment_raw_len(segment);
        if directory.recipe.scheme == Scheme::Verbatim {
            verify(directory, segment, stored)?;
            target.copy_from_slice(&stored[from..from + target.len()]);
            return Ok(());
        }
        if target.len() == raw {
            return self.whole_segment(directory, segment, stored, target);
        }
        let mut whole = std::mem::take(&mut self.whole);
        whole.resize(raw, 0);
        let result = self.whole_segment(directory, segment, stored, &mut whole);
        target.copy_from_slice(&whole[from..from + target.len()]);
        self.whole = whole;
        result
    }

    fn whole_segment(
        &mut self,
        directory: &Directory<'_>,
        segment: usize,
        stored: &[u8],
        target: &mut [u8],
    ) -> Result<(), Error> {
        let mut cursor = Cursor {
            directory,
            segment,
            stream: 0,
            rest: stored,
        };
        let width = directory.recipe.width as usize;
        if directory.recipe.map == NumberMap::Bytes {
            let work = &mut self.work;
            let n = target.len() / width;
            if matches!(width, 2 | 4 | 8) {
                let found = columns(&mut work.streams, &mut cursor, n, width, &mut work.columns)?;
                with_lane!(self.lanes, width, lane => join_bytes(lane, &found, target));
            } else if width == 1 {
                wide_columns(&mut work.streams, &mut cursor, n, target)?;
            } else {
                work.columns.resize(target.len(), 0);
                wide_columns(&mut work.streams, &mut cursor, n, &mut work.columns)?;
                shuffle::unshuffle(width, &work.columns, target);
            }
        } else {
            let work = &mut self.work;
            with_lane!(self.lanes, width, lane => work.numbers(lane, &mut cursor, target))?;
        }
        verify(directory, segment, target)
    }
}

/// Fills `target` with an element over and over, from byte `start` of the series on.
fn repeat(element: &[u8], start: usize, target: &mut [u8]) {
    let width = element.len();
    if let [byte] = element {
        target.fill(*byte);
        return;
    }
    let first = width.min(target.len());
    for (i, to) in target[..first].iter_mut().enumerate() {
        *to = element[(start + i) % width];
    }
    let mut done = first;
    while done < target.len() {
        // Doubles; a whole number of elements until the last time.
        let len = done.min(target.len() - done);
        target.copy_within(..len, done);
        done += len;
    }
}

/// Columns to bytes by way of words.
fn join_bytes<W: FloatWord>(lane: &mut Lane<W>, columns: &[&[u8]; 8], bytes: &mut [u8]) {
    lane.words.resize(bytes.len() / W::BYTES, W::default());
    simd::join_columns(columns, &mut lane.words);
    simd::store_all(&lane.words, false, bytes);
}

/// Walks through the streams of a segment.
struct Cursor<'a> {
    directory: &'a Directory<'a>,
    segment: usize,
    stream: usize,
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    fn next(&mut self) -> Result<(StreamEntry, &'a [u8]), Error> {
        let entry = self.directory.stream(self.segment, self.stream)?;
        self.stream += 1;
        let (stored, rest) = self
            .rest
            .split_at_checked(entry.stored_len as usize)
            .ok_or(Error::Malformed("stream goes beyond its segment"))?;
        self.rest = rest;
        Ok((entry, stored))
    }
}

impl Cursor<'_> {
    /// Decoded length of the next stream.
    fn peek_len(&self) -> Result<usize, Error> {
        Ok(self.directory.stream(self.segment, self.stream)?.raw_len as usize)
    }

    /// Passes over streams that must be empty.
    fn skip_empty(&mut self, count: usize) -> Result<(), Error> {
        for _ in 0..count {
            let (entry, stored) = self.next()?;
            stream::verify(&entry, stored)?;
            if entry.raw_len != 0 || !stored.is_empty() {
                return Err(Error::Malformed("columns of different length"));
            }
        }
        Ok(())
    }
}

/// Decodes the columns of a segment, `n` bytes each, one for each byte of the
/// width. Columns stored raw are not copied: they are left where they are.
fn columns<'a>(
    streams: &mut StreamDecoder,
    cursor: &mut Cursor<'a>,
    n: usize,
    width: usize,
    space: &'a mut Vec<u8>,
) -> Result<[&'a [u8]; 8], Error> {
    space.resize(n * width, 0);
    let mut found: [&[u8]; 8] = [&[]; 8];
    for (column, space) in found.iter_mut().zip(space.chunks_exact_mut(n)) {
        let (entry, stored) = cursor.next()?;
        if entry.coder == Coder::Raw
            && entry.filter == Filter::None
            && stored.len() == n
            && entry.raw_len as usize == n
        {
            stream::verify(&entry, stored)?;
            *column = stored;
        } else {
            streams.decode(&entry, stored, space)?;
            if entry.filter == Filter::Delta {
                shuffle::undelta(space);
            }
            *column = space;
        }
    }
    Ok(found)
}

/// Decodes the columns of records of any width into one space.
fn wide_columns(
    streams: &mut StreamDecoder,
    cursor: &mut Cursor<'_>,
    n: usize,
    space: &mut [u8],
) -> Result<(), Error> {
    for column in space.chunks_exact_mut(n) {
        let (entry, stored) = cursor.next()?;
        streams.decode(&entry, stored, column)?;
        if entry.filter == Filter::Delta {
            shuffle::undelta(column);
        }
    }
    Ok(())
}

impl Work {
    fn numbers<'a, W: FloatWord>(
        &'a mut self,
        lane: &mut Lane<W>,
        cursor: &mut Cursor<'a>,
        raw: &mut [u8],
    ) -> Result<(), Error> {
        let recipe = &cursor.directory.recipe;
        let n = raw.len() / W::BYTES;
        let mut found: [&[u8]; 8] = [&[]; 8];
        let kept = if recipe.scheme == Scheme::Residuals {
            let (classes, coded) = cursor.next()?;
            stream::verify(&classes, coded)?;
            let (bits, extra) = cursor.next()?;
            stream::verify(&bits, extra)?;
            if classes.coder != Coder::Rans
                || bits.coder != Coder::Raw && bits.coder != Coder::Constant
                || classes.raw_len as usize > n
            {
                return Err(Error::Malformed("residuals by an unexpected coder"));
            }
            let kept = classes.raw_len as usize;
            lane.words.resize(kept, W::default());
            let row = residual::context_row(recipe, kept == n);
            if bits.coder == Coder::Constant {
                if bits.raw_len as usize > raw.len() {
                    return Err(Error::Malformed("more extra bits than the elements have"));
                }
                self.side.resize(bits.raw_len as usize, 0);
                self.streams.decode(&bits, extra, &mut self.side)?;
                residual::decode(coded, &self.side, row, &mut self.residuals, &mut lane.words)?;
            } else {
                residual::decode(coded, extra, row, &mut self.residuals, &mut lane.words)?;
            }
            kept
        } else {
            // What the exceptions left over; checked against them later.
            let kept = cursor.peek_len()?;
            if kept > n {
                return Err(Error::Malformed("column longer than its segment"));
            }
            if kept > 0 {
                let space = &mut self.columns;
                found = columns(&mut self.streams, cursor, kept, W::BYTES, space)?;
            } else {
                cursor.skip_empty(W::BYTES)?;
            }
            kept
        };
        let (entry, stored) = cursor.next()?;
        let errors = if recipe.map == NumberMap::Decimal {
            kept
        } else {
            0
        };
        self.side.resize(errors, 0);
        self.streams.decode(&entry, stored, &mut self.side)?;
        let (entry, stored) = cursor.next()?;
        if entry.raw_len as usize > exceptions::max_len(raw.len()) {
            return Err(Error::Malformed("more exceptions than elements"));
        }
        self.excepted.resize(entry.raw_len as usize, 0);
        self.streams.decode(&entry, stored, &mut self.excepted)?;
        if recipe.scheme == Scheme::Columns {
            if kept == n && self.excepted.is_empty() && is_local(recipe) {
                expand_columns(lane, recipe, &found, &self.side, raw);
                return Ok(());
            }
            lane.words.resize(kept, W::default());
            if kept > 0 {
                simd::join_columns(&found, &mut lane.words);
            }
        }
        expand(
            lane,
            recipe,
            &mut self.side,
            &self.excepted,
            &mut self.exceptions,
            raw,
        )
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
