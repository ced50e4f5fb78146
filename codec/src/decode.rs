//! Decodes a frame back into its chunk.
#![forbid(unsafe_code)]

use crate::checksum::hash64;
use crate::entropy::residual::{self, ResidualScratch};
use crate::entropy::stream::{self, StreamDecoder};
use crate::error::Error;
use crate::frame::{
    Coder, Filter, FrameDirectory, FrameHeader, NumberMap, Scheme, StreamEntry, parse_header,
};
use crate::transform::decimal::FloatWord;
use crate::transform::exceptions::Exceptions;
use crate::transform::kernels;
use crate::transform::numeric::{
    WordScratch, WordScratches, expand, expand_columns, is_local, with_words,
};
use crate::transform::{exceptions, shuffle};

/// Decodes frames. Keeps its scratch memory, so use one per thread.
pub struct Decoder {
    words: WordScratches,
    work: DecodeScratch,
    /// A whole block, when only a part of it is asked for.
    whole: Vec<u8>,
}

/// Scratch memory that does not depend on the element's width.
struct DecodeScratch {
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
            words: WordScratches::default(),
            work: DecodeScratch {
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

    /// Replaces the contents of `out` with the whole chunk, every checksum verified.
    pub fn decode(&mut self, frame: &[u8], out: &mut Vec<u8>) -> Result<FrameHeader, Error> {
        let header = parse_header(frame).inspect_err(|_| out.clear())?;
        self.decode_part(&header, frame, 0, header.raw_len as usize, out)?;
        Ok(header)
    }

    /// Replaces the contents of `out` with `len` bytes of the chunk from `start`
    /// on. Only the blocks that hold them are decoded and verified.
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
        let directory = FrameDirectory::parse(header, frame)?;
        let outside = Error::Range {
            start,
            len,
            raw_len,
        };
        let end = start
            .checked_add(len)
            .filter(|&end| end <= raw_len)
            .ok_or(outside)?;
        // The previous contents of `out` are overwritten, not cleared first.
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
        for block in 0..directory.blocks() {
            let raw = directory.block_raw_len(block);
            let (stored, rest) = payload
                .split_at_checked(directory.block_stored_len(block)?)
                .ok_or(Error::Malformed("payload ends early"))?;
            payload = rest;
            let from = start.clamp(begin, begin + raw) - begin;
            let to = end.clamp(begin, begin + raw) - begin;
            if from < to {
                self.block(&directory, block, stored, from, next(to - from)?)?;
            }
            begin += raw;
        }
        if !payload.is_empty() {
            return Err(Error::Malformed("payload continues after the last block"));
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

    /// Fills `target` from byte `from` of a block on.
    fn block(
        &mut self,
        directory: &FrameDirectory<'_>,
        block: usize,
        stored: &[u8],
        from: usize,
        target: &mut [u8],
    ) -> Result<(), Error> {
        let raw = directory.block_raw_len(block);
        if directory.recipe.scheme == Scheme::Verbatim {
            verify(directory, block, stored)?;
            target.copy_from_slice(&stored[from..from + target.len()]);
            return Ok(());
        }
        if target.len() == raw {
            return self.whole_block(directory, block, stored, target);
        }
        let mut whole = std::mem::take(&mut self.whole);
        whole.resize(raw, 0);
        let result = self.whole_block(directory, block, stored, &mut whole);
        target.copy_from_slice(&whole[from..from + target.len()]);
        self.whole = whole;
        result
    }

    fn whole_block(
        &mut self,
        directory: &FrameDirectory<'_>,
        block: usize,
        stored: &[u8],
        target: &mut [u8],
    ) -> Result<(), Error> {
        let mut cursor = Cursor {
            directory,
            block,
            stream: 0,
            rest: stored,
        };
        let width = directory.recipe.width as usize;
        if directory.recipe.map == NumberMap::Bytes {
            let work = &mut self.work;
            let n = target.len() / width;
            if matches!(width, 2 | 4 | 8) {
                let found = columns(&mut work.streams, &mut cursor, n, width, &mut work.columns)?;
                with_words!(self.words, width, scratch => join_bytes(scratch, &found, target));
            } else if width == 1 {
                wide_columns(&mut work.streams, &mut cursor, n, target)?;
            } else {
                work.columns.resize(target.len(), 0);
                wide_columns(&mut work.streams, &mut cursor, n, &mut work.columns)?;
                shuffle::unshuffle(width, &work.columns, target);
            }
        } else {
            let work = &mut self.work;
            with_words!(self.words, width, scratch => work.numbers(scratch, &mut cursor, target))?;
        }
        verify(directory, block, target)
    }
}

/// Fills `target` with an element, repeated, from byte `start` of the series on.
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

/// Joins columns into words, and words into bytes.
fn join_bytes<W: FloatWord>(scratch: &mut WordScratch<W>, columns: &[&[u8]; 8], bytes: &mut [u8]) {
    scratch.words.resize(bytes.len() / W::BYTES, W::default());
    kernels::join_columns(columns, &mut scratch.words);
    kernels::store_all(&scratch.words, false, bytes);
}

/// Walks through the streams of a block.
struct Cursor<'a> {
    directory: &'a FrameDirectory<'a>,
    block: usize,
    stream: usize,
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    fn next(&mut self) -> Result<(StreamEntry, &'a [u8]), Error> {
        let entry = self.directory.stream(self.block, self.stream)?;
        self.stream += 1;
        let (stored, rest) = self
            .rest
            .split_at_checked(entry.stored_len as usize)
            .ok_or(Error::Malformed("stream extends beyond its block"))?;
        self.rest = rest;
        Ok((entry, stored))
    }
}

impl Cursor<'_> {
    /// Decoded length of the next stream.
    fn peek_len(&self) -> Result<usize, Error> {
        Ok(self.directory.stream(self.block, self.stream)?.raw_len as usize)
    }

    /// Skips streams that must be empty.
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

/// Decodes the columns of a block, `n` bytes each, one for each byte of the
/// width. Columns stored raw are not copied.
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

impl DecodeScratch {
    fn numbers<'a, W: FloatWord>(
        &'a mut self,
        scratch: &mut WordScratch<W>,
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
            scratch.words.resize(kept, W::default());
            let row = residual::context_row(recipe, kept == n);
            if bits.coder == Coder::Constant {
                if bits.raw_len as usize > raw.len() {
                    return Err(Error::Malformed("more extra bits than the elements have"));
                }
                self.side.resize(bits.raw_len as usize, 0);
                self.streams.decode(&bits, extra, &mut self.side)?;
                residual::decode(
                    coded,
                    &self.side,
                    row,
                    &mut self.residuals,
                    &mut scratch.words,
                )?;
            } else {
                residual::decode(coded, extra, row, &mut self.residuals, &mut scratch.words)?;
            }
            kept
        } else {
            // The rest after the exceptions; checked against them later.
            let kept = cursor.peek_len()?;
            if kept > n {
                return Err(Error::Malformed("column longer than its block"));
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
                expand_columns(scratch, recipe, &found, &self.side, raw);
                return Ok(());
            }
            scratch.words.resize(kept, W::default());
            if kept > 0 {
                kernels::join_columns(&found, &mut scratch.words);
            }
        }
        expand(
            scratch,
            recipe,
            &mut self.side,
            &self.excepted,
            &mut self.exceptions,
            raw,
        )
    }
}

fn verify(directory: &FrameDirectory<'_>, block: usize, raw: &[u8]) -> Result<(), Error> {
    let expected = directory.block_hash(block);
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
