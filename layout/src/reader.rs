//! Reads a file under a budget, and records which bytes were read.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::time::Instant;

use crate::error::Error;
use crate::options::ParseBudget;
use crate::ranges::Ranges;
use crate::source::ReadAt;

const BLOCK: u64 = 4096;
const MAX_BLOCKS: usize = 256;

/// The longest structure that is read at once.
pub(crate) const MAX_STRUCTURE: u64 = 1 << 20;

/// A growing vector holds up to twice what it needs, and its old buffer while it moves.
pub(crate) const GROWTH: usize = 3;

/// The only way from a parser to the bytes of a file.
pub(crate) struct BudgetedReader<'a> {
    source: &'a dyn ReadAt,
    len: u64,
    budget: ParseBudget,
    started: Instant,
    read: u64,
    used: usize,
    blocks: HashMap<u64, Vec<u8>>,
    age: VecDeque<u64>,
    parsed: Ranges,
    // The range that is growing right now; spares the set for reads that follow each other.
    recent: Range<u64>,
}

impl<'a> BudgetedReader<'a> {
    pub(crate) fn new(source: &'a dyn ReadAt, budget: ParseBudget) -> Self {
        Self {
            source,
            // Offsets of files are signed everywhere below us.
            len: source.len().min(i64::MAX as u64),
            budget,
            started: Instant::now(),
            read: 0,
            used: 0,
            blocks: HashMap::new(),
            age: VecDeque::new(),
            parsed: Ranges::default(),
            recent: 0..0,
        }
    }

    /// Length of the file.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The bytes read so far.
    pub(crate) fn into_parsed(mut self) -> Ranges {
        self.parsed.insert(self.recent.clone());
        self.parsed
    }

    /// Charges memory that a parser is about to allocate.
    pub(crate) fn charge(&mut self, bytes: usize) -> Result<(), Error> {
        self.used = self.used.saturating_add(bytes);
        if self.used > self.budget.structure_bytes {
            return Err(Error::StructureBudget {
                limit: self.budget.structure_bytes,
            });
        }
        Ok(())
    }

    /// Releases memory that was charged.
    pub(crate) fn release(&mut self, bytes: usize) {
        self.used = self.used.saturating_sub(bytes);
    }

    /// Fails when time is up; loops that do not read call it.
    pub(crate) fn tick(&self) -> Result<(), Error> {
        if self.started.elapsed() > self.budget.time {
            return Err(Error::TimeBudget {
                limit_ms: u64::try_from(self.budget.time.as_millis()).unwrap_or(u64::MAX),
            });
        }
        Ok(())
    }

    /// Reads a structure.
    pub(crate) fn read(&mut self, offset: u64, len: u64) -> Result<Vec<u8>, Error> {
        self.inside(offset, len)?;
        if len > MAX_STRUCTURE {
            return Err(Error::Unsupported {
                what: "structure of length",
                found: len,
            });
        }
        let mut bytes = vec![0; len as usize];
        self.read_into(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads exactly as many bytes as `into` holds.
    pub(crate) fn read_into(&mut self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let len = into.len() as u64;
        self.inside(offset, len)?;
        self.spend(len)?;
        self.tick()?;
        self.note(offset..offset + len);
        let mut at = offset;
        let mut rest = into;
        while !rest.is_empty() {
            let number = at / BLOCK;
            let within = (at % BLOCK) as usize;
            let block = self.block(number)?;
            let found = block.get(within..).unwrap_or_default();
            let count = found.len().min(rest.len());
            if count == 0 {
                // The file has shrunk since its length was asked for.
                return Err(Error::OutOfFile {
                    offset,
                    len,
                    file_len: at,
                });
            }
            let (now, later) = rest.split_at_mut(count);
            for (to, from) in now.iter_mut().zip(found) {
                *to = *from;
            }
            at += count as u64;
            rest = later;
        }
        Ok(())
    }

    fn inside(&self, offset: u64, len: u64) -> Result<(), Error> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(Error::OutOfFile {
                offset,
                len,
                file_len: self.len,
            }),
        }
    }

    fn spend(&mut self, bytes: u64) -> Result<(), Error> {
        self.read = self.read.saturating_add(bytes);
        if self.read > self.budget.read_bytes {
            return Err(Error::ReadBudget {
                limit: self.budget.read_bytes,
            });
        }
        Ok(())
    }

    fn note(&mut self, range: Range<u64>) {
        if range.start == self.recent.end {
            self.recent.end = range.end;
        } else if range.start < self.recent.start || range.end > self.recent.end {
            self.parsed.insert(self.recent.clone());
            self.recent = range;
        }
    }

    fn block(&mut self, number: u64) -> Result<&[u8], Error> {
        if !self.blocks.contains_key(&number) {
            let block = self.fetch(number)?;
            if self.age.len() >= MAX_BLOCKS
                && let Some(oldest) = self.age.pop_front()
            {
                self.blocks.remove(&oldest);
            }
            self.age.push_back(number);
            self.blocks.insert(number, block);
        }
        Ok(self.blocks.get(&number).map_or(&[], Vec::as_slice))
    }

    fn fetch(&mut self, number: u64) -> Result<Vec<u8>, Error> {
        let offset = number * BLOCK;
        let len = BLOCK.min(self.len.saturating_sub(offset));
        self.spend(len)?;
        let mut block = vec![0; len as usize];
        let mut filled = 0;
        while let Some(rest) = block.get_mut(filled..)
            && !rest.is_empty()
        {
            match self.source.read_at(offset + filled as u64, rest) {
                Ok(0) => break,
                Ok(count) => filled += count.min(rest.len()),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => {
                    return Err(Error::Io {
                        offset,
                        len,
                        message: error.to_string(),
                    });
                }
            }
        }
        block.truncate(filled);
        Ok(block)
    }
}
