//! Elements that are not predicted: fill values, and floats that the number map
//! cannot express.
//!
//! The stream: number of runs, then per run the distance from the end of the
//! run before and its length (all LEB128), then a byte 1 and one element if
//! all are equal, or a byte 0 and every element. Elements are little-endian.
#![forbid(unsafe_code)]

use crate::error::Error;
use crate::transform::runs::leading;
use crate::transform::word::Word;

/// Exceptions of one block.
#[derive(Default)]
pub(crate) struct Exceptions {
    /// Start and length of each run.
    pub(crate) runs: Vec<(u32, u32)>,
}

/// An encoder never writes a longer list for a block of `raw_len` bytes.
pub(crate) fn max_len(raw_len: usize) -> usize {
    4 * raw_len + 64
}

impl Exceptions {
    /// Finds the runs of elements whose flag is set.
    pub(crate) fn find(&mut self, flags: &[u8]) {
        self.runs.clear();
        let mut at = 0;
        loop {
            at += leading(&flags[at..], 0);
            if at >= flags.len() {
                return;
            }
            let len = leading(&flags[at..], 1);
            self.runs.push((at as u32, len as u32));
            at += len;
        }
    }

    /// Writes the stream; `block` has the elements.
    pub(crate) fn write<W: Word>(&self, block: &[u8], big: bool, out: &mut Vec<u8>) {
        out.clear();
        let Some(&(first, _)) = self.runs.first() else {
            return;
        };
        put(out, self.runs.len() as u32);
        let mut end = 0;
        for &(start, len) in &self.runs {
            put(out, start - end);
            put(out, len);
            end = start + len;
        }
        let elements = |start: u32, len: u32| {
            &block[start as usize * W::BYTES..(start + len) as usize * W::BYTES]
        };
        let one = elements(first, 1);
        let same = self.runs.iter().all(|&(start, len)| {
            // Each like the one before it.
            let run = elements(start, len);
            run[..W::BYTES] == *one && run[W::BYTES..] == run[..run.len() - W::BYTES]
        });
        out.push(u8::from(same));
        let listed: &[(u32, u32)] = if same { &[(first, 1)] } else { &self.runs };
        for &(start, len) in listed {
            for element in elements(start, len).chunks_exact(W::BYTES) {
                let begin = out.len();
                out.extend_from_slice(element);
                W::load(element, big).store(&mut out[begin..], false);
            }
        }
    }

    /// Removes the exceptions from a block's elements.
    pub(crate) fn remove_from<T: Copy>(&self, elements: &mut Vec<T>) {
        let Some(&(first, _)) = self.runs.first() else {
            return;
        };
        let mut to = first as usize;
        for (i, &(start, len)) in self.runs.iter().enumerate() {
            let from = (start + len) as usize;
            let end = self
                .runs
                .get(i + 1)
                .map_or(elements.len(), |next| next.0 as usize);
            elements.copy_within(from..end, to);
            to += end - from;
        }
        elements.truncate(to);
    }

    /// Undoes [`remove_from`](Exceptions::remove_from), with zeros for the exceptions.
    pub(crate) fn reinsert_into<T: Copy + Default>(
        &self,
        elements: &mut Vec<T>,
        n: usize,
    ) -> Result<(), Error> {
        let total: usize = self.runs.iter().map(|run| run.1 as usize).sum();
        let mut from = elements.len();
        if from.checked_add(total) != Some(n) {
            return Err(Error::Malformed("columns and exceptions are not a block"));
        }
        elements.resize(n, T::default());
        let mut end = n;
        for &(start, len) in self.runs.iter().rev() {
            let after = (start + len) as usize;
            let kept = end - after;
            elements.copy_within(from - kept..from, after);
            from -= kept;
            end = start as usize;
            elements[end..after].fill(T::default());
        }
        Ok(())
    }

    /// Reads the runs of a stream for a block of `n` elements; returns the listed elements.
    pub(crate) fn read<'a, W: Word>(
        &mut self,
        stream: &'a [u8],
        n: usize,
    ) -> Result<&'a [u8], Error> {
        self.runs.clear();
        if stream.is_empty() {
            return Ok(&[]);
        }
        const BAD: Error = Error::Malformed("exceptions contradict the block");
        let mut at = 0;
        let count = get(stream, &mut at)? as usize;
        if count > stream.len() {
            return Err(BAD);
        }
        self.runs.reserve(count);
        let mut end = 0usize;
        let mut total = 0usize;
        for _ in 0..count {
            let start = end + get(stream, &mut at)? as usize;
            let len = get(stream, &mut at)? as usize;
            end = start + len;
            total += len;
            if end > n {
                return Err(BAD);
            }
            self.runs.push((start as u32, len as u32));
        }
        let listed = match stream.get(at) {
            Some(1) => 1,
            Some(0) => total,
            _ => return Err(BAD),
        };
        let values = &stream[at + 1..];
        if values.len() != listed * W::BYTES {
            return Err(BAD);
        }
        Ok(values)
    }

    /// Puts the listed elements into `raw`, a block's raw bytes.
    pub(crate) fn apply<W: Word>(&self, values: &[u8], big: bool, raw: &mut [u8]) {
        let target =
            |(start, len): (u32, u32)| start as usize * W::BYTES..(start + len) as usize * W::BYTES;
        let mut listed = values
            .chunks_exact(W::BYTES)
            .map(|bytes| W::load(bytes, false));
        // A single element stands for all exceptions.
        if values.len() == W::BYTES {
            let mut element = [0; 8];
            if let Some(word) = listed.next() {
                word.store(&mut element[..W::BYTES], big);
            }
            for &run in &self.runs {
                for to in raw[target(run)].chunks_exact_mut(W::BYTES) {
                    to.copy_from_slice(&element[..W::BYTES]);
                }
            }
            return;
        }
        for &run in &self.runs {
            for (to, word) in raw[target(run)].chunks_exact_mut(W::BYTES).zip(&mut listed) {
                word.store(to, big);
            }
        }
    }
}

fn put(out: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn get(stream: &[u8], at: &mut usize) -> Result<u32, Error> {
    let mut value = 0u32;
    for shift in (0..28).step_by(7) {
        let byte = *stream
            .get(*at)
            .ok_or(Error::Malformed("exceptions end early"))?;
        *at += 1;
        value |= u32::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(Error::Malformed("exception counts are too large"))
}
