//! Elements that stand outside the prediction: fill values, and floats that
//! the number map cannot express.
//!
//! The stream: number of runs, then per run the distance from the end of the
//! run before and its length (all LEB128), then a byte 1 and one element if
//! all are equal, or a byte 0 and every element. Elements are little-endian.
#![forbid(unsafe_code)]

use crate::Error;
use crate::word::Word;

/// Exceptions of one segment.
#[derive(Default)]
pub(crate) struct Exceptions {
    /// Start and length of each run.
    pub(crate) runs: Vec<(u32, u32)>,
}

/// No honest list is longer than this for a segment of `raw_len` bytes.
pub(crate) fn max_len(raw_len: usize) -> usize {
    4 * raw_len + 64
}

impl Exceptions {
    pub(crate) fn clear(&mut self) {
        self.runs.clear();
    }

    /// Adds an element behind all others.
    #[inline(always)]
    pub(crate) fn push(&mut self, at: usize) {
        match self.runs.last_mut() {
            Some((start, len)) if (*start + *len) as usize == at => *len += 1,
            _ => self.runs.push((at as u32, 1)),
        }
    }

    /// Writes the stream; `element` gives the bits at a position.
    pub(crate) fn write<W: Word>(&self, element: impl Fn(usize) -> W, out: &mut Vec<u8>) {
        out.clear();
        if self.runs.is_empty() {
            return;
        }
        put(out, self.runs.len() as u32);
        let mut end = 0;
        for &(start, len) in &self.runs {
            put(out, start - end);
            put(out, len);
            end = start + len;
        }
        let first = element(self.runs[0].0 as usize);
        let positions = || {
            self.runs
                .iter()
                .flat_map(|&(start, len)| start as usize..(start + len) as usize)
        };
        let same = positions().all(|at| element(at) == first);
        out.push(u8::from(same));
        for at in positions().take(if same { 1 } else { usize::MAX }) {
            let begin = out.len();
            out.resize(begin + W::BYTES, 0);
            element(at).store(&mut out[begin..], false);
        }
    }

    /// Puts the exceptions of `stream` into `raw`, a segment's raw bytes.
    pub(crate) fn apply<W: Word>(stream: &[u8], big: bool, raw: &mut [u8]) -> Result<(), Error> {
        if stream.is_empty() {
            return Ok(());
        }
        const BAD: Error = Error::Malformed("exceptions contradict the segment");
        let mut at = 0;
        let runs = get(stream, &mut at)?;
        // First pass: find where the elements are.
        let mut values = at;
        let mut total = 0usize;
        for _ in 0..runs {
            get(stream, &mut values)?;
            total += get(stream, &mut values)? as usize;
        }
        let same = match stream.get(values) {
            Some(1) => true,
            Some(0) => false,
            _ => return Err(BAD),
        };
        values += 1;
        let listed = if same { 1 } else { total };
        if stream.len() - values != listed.checked_mul(W::BYTES).ok_or(BAD)? {
            return Err(BAD);
        }
        let mut end = 0usize;
        for _ in 0..runs {
            let start = end + get(stream, &mut at)? as usize;
            let len = get(stream, &mut at)? as usize;
            end = start + len;
            let target = start
                .checked_mul(W::BYTES)
                .zip(end.checked_mul(W::BYTES))
                .and_then(|(start, end)| raw.get_mut(start..end))
                .ok_or(BAD)?;
            for to in target.chunks_exact_mut(W::BYTES) {
                W::load(&stream[values..values + W::BYTES], false).store(to, big);
                if !same {
                    values += W::BYTES;
                }
            }
        }
        Ok(())
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
