//! Contents that say which version they are, and a model of the states after a crash.
//!
//! Every 4 KiB block of a file follows from (file, version, block number), so a
//! block read back can be explained byte for byte or not at all:
//!
//! ```text
//!  0        8       16        24       32                                4096
//!  | magic  | file  | version | block  | noise or a repeated pattern ...   |
//! ```
//!
//! [`Content`] tracks one file: what it holds now, and every state each of its
//! blocks may be in on disk given what has been acknowledged by fsync. All
//! writes begin at a block boundary and end at one or at the new end of file.

use std::collections::BTreeSet;

use crate::{Failure, Outcome, Rng, ensure};

/// Size of a block.
pub const BLOCK: usize = 4096;

const MAGIC: u64 = u64::from_le_bytes(*b"shaleblk");

/// The bytes of one block.
pub fn block(file: u64, version: u64, number: u64) -> [u8; BLOCK] {
    let mut bytes = [0u8; BLOCK];
    let mut rng =
        Rng::new(file.wrapping_mul(0x1_0001) ^ version.rotate_left(32) ^ number.rotate_left(16));
    // Both kinds of data occur: compressible and incompressible.
    if version.is_multiple_of(3) {
        let pattern = rng.next_u64().to_le_bytes();
        for piece in bytes.chunks_mut(8) {
            piece.copy_from_slice(&pattern);
        }
    } else {
        rng.fill(&mut bytes);
    }
    for (slot, word) in bytes.chunks_mut(8).zip([MAGIC, file, version, number]) {
        slot.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// The bytes of a write that begins with block `first` and has `length` bytes.
pub fn blocks(file: u64, version: u64, first: u64, length: usize) -> Vec<u8> {
    let count = length.div_ceil(BLOCK) as u64;
    let mut bytes: Vec<u8> = (first..first + count)
        .flat_map(|n| block(file, version, n))
        .collect();
    bytes.truncate(length);
    bytes
}

/// The file that a block names.
pub fn owner(bytes: &[u8]) -> Option<u64> {
    (word(bytes, 0)? == MAGIC).then(|| word(bytes, 1)).flatten()
}

fn word(bytes: &[u8], index: usize) -> Option<u64> {
    let slot = bytes.get(index * 8..index * 8 + 8)?;
    Some(u64::from_le_bytes(slot.try_into().ok()?))
}

/// The contents of a block: `cut` bytes of a version, then zeros. A hole has no version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Zero,
    Data { version: u64, cut: usize },
}

impl State {
    fn bytes(self, file: u64, number: u64) -> [u8; BLOCK] {
        match self {
            State::Zero => [0; BLOCK],
            State::Data { version, cut } => {
                let mut bytes = block(file, version, number);
                bytes[cut..].fill(0);
                bytes
            }
        }
    }

    fn cut_at(self, cut: usize) -> State {
        match self {
            State::Zero => State::Zero,
            State::Data { version, cut: old } => State::Data {
                version,
                cut: old.min(cut),
            },
        }
    }
}

/// One file: its present contents and all contents it may have after a crash.
#[derive(Clone, Debug)]
pub struct Content {
    file: u64,
    size: u64,
    now: Vec<State>,
    smallest: u64,
    largest: u64,
    possible: Vec<BTreeSet<State>>,
}

impl Content {
    /// A new, empty file.
    pub fn new(file: u64) -> Self {
        Content {
            file,
            size: 0,
            now: Vec::new(),
            smallest: 0,
            largest: 0,
            possible: Vec::new(),
        }
    }

    /// The file's number.
    pub fn file(&self) -> u64 {
        self.file
    }

    /// Its size now.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Notes that `length` bytes of `version` are about to be written from block `first` on.
    pub fn will_write(&mut self, version: u64, first: u64, length: usize) {
        let end = first * BLOCK as u64 + length as u64;
        self.grow_to(end.max(self.size));
        for number in first..first + length.div_ceil(BLOCK) as u64 {
            let cut = (end - number * BLOCK as u64).min(BLOCK as u64) as usize;
            let state = State::Data { version, cut };
            self.now[number as usize] = state;
            self.possible[number as usize].insert(state);
        }
    }

    /// Notes that the size is about to be set.
    pub fn will_truncate(&mut self, size: u64) {
        if size >= self.size {
            self.grow_to(size);
            return;
        }
        let whole = (size / BLOCK as u64) as usize;
        let cut = (size % BLOCK as u64) as usize;
        if cut > 0 {
            self.now[whole] = self.now[whole].cut_at(cut);
            let cuts: Vec<State> = self.possible[whole]
                .iter()
                .map(|state| state.cut_at(cut))
                .collect();
            self.possible[whole].extend(cuts);
        }
        self.now.truncate(size.div_ceil(BLOCK as u64) as usize);
        self.size = size;
        self.smallest = self.smallest.min(size);
        for possible in self.possible.iter_mut().skip(self.now.len()) {
            possible.insert(State::Zero);
        }
    }

    fn grow_to(&mut self, size: u64) {
        self.size = size;
        self.largest = self.largest.max(size);
        let count = size.div_ceil(BLOCK as u64) as usize;
        self.now.resize(count, State::Zero);
        if self.possible.len() < count {
            self.possible.resize(count, BTreeSet::from([State::Zero]));
        }
    }

    /// Notes that fsync has returned: from now on only the present contents are valid.
    pub fn acknowledged(&mut self) {
        self.smallest = self.size;
        self.largest = self.size;
        self.possible = self
            .now
            .iter()
            .map(|state| BTreeSet::from([*state]))
            .collect();
    }

    /// Checks the contents after a crash, and takes them as the new acknowledged contents.
    pub fn recovered(&mut self, bytes: &[u8]) -> Outcome {
        let size = bytes.len() as u64;
        ensure!(
            (self.smallest..=self.largest).contains(&size),
            "file {:#x} has {size} bytes, possible are {} to {}",
            self.file,
            self.smallest,
            self.largest
        );
        let mut now = Vec::new();
        for (number, found) in bytes.chunks(BLOCK).enumerate() {
            let state = self.explain(number, found)?;
            now.push(state);
        }
        self.now = now;
        self.size = size;
        self.acknowledged();
        Ok(())
    }

    /// Checks that the file holds exactly the last written contents.
    pub fn current(&self, bytes: &[u8]) -> Outcome {
        let mut exact = self.clone();
        exact.acknowledged();
        exact.recovered(bytes)
    }

    fn explain(&self, number: usize, found: &[u8]) -> Outcome<State> {
        let possible = &self.possible[number];
        // The newest first: several may agree in the few bytes before the end of file.
        for state in possible.iter().rev() {
            let expected = state.bytes(self.file, number as u64);
            if expected[..found.len()] == *found {
                return Ok(match state {
                    State::Data { version, cut } => State::Data {
                        version: *version,
                        cut: (*cut).min(found.len()),
                    },
                    State::Zero => State::Zero,
                });
            }
        }
        Err(Failure::new(format!(
            "file {:#x}, block {number}: {}; possible are {possible:?}",
            self.file,
            describe(self.file, number as u64, found)
        )))
    }
}

fn describe(file: u64, number: u64, found: &[u8]) -> String {
    if found.iter().all(|byte| *byte == 0) {
        return format!("{} zeros", found.len());
    }
    match (owner(found), word(found, 2), word(found, 3)) {
        (Some(theirs), Some(version), Some(at)) => {
            let expected = block(theirs, version, at);
            let same = found
                .iter()
                .zip(expected)
                .take_while(|(a, b)| *a == b)
                .count();
            let rest = if found[same..].iter().all(|byte| *byte == 0) {
                "zeros"
            } else {
                "garbage"
            };
            let whose = if theirs == file { "" } else { "FOREIGN " };
            let place = if at == number { "" } else { "MISPLACED " };
            format!(
                "{whose}{place}block {at} of file {theirs:#x} in version {version}, {same} of {} bytes right, then {rest}",
                found.len()
            )
        }
        _ => format!("garbage: {:02x?}...", &found[..found.len().min(16)]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const B: u64 = BLOCK as u64;

    fn written(versions: &[u64]) -> Content {
        let mut content = Content::new(7);
        for version in versions {
            content.will_write(*version, 0, 2 * BLOCK);
        }
        content
    }

    #[test]
    fn acknowledged_contents_must_be_there_exactly() {
        let mut content = written(&[1]);
        content.acknowledged();
        assert!(
            content
                .clone()
                .recovered(&blocks(7, 1, 0, 2 * BLOCK))
                .is_ok()
        );
        assert!(
            content
                .clone()
                .recovered(&blocks(7, 2, 0, 2 * BLOCK))
                .is_err()
        );
        assert!(
            content
                .clone()
                .recovered(&blocks(8, 1, 0, 2 * BLOCK))
                .is_err()
        );
        assert!(content.clone().recovered(&blocks(7, 1, 0, BLOCK)).is_err());
        assert!(content.clone().recovered(&[0; 2 * BLOCK]).is_err());
        let mut flipped = blocks(7, 1, 0, 2 * BLOCK);
        flipped[5000] ^= 1;
        assert!(content.recovered(&flipped).is_err());
    }

    #[test]
    fn unacknowledged_overwrites_may_mix_per_block_but_not_within_one() {
        let mut content = written(&[1]);
        content.acknowledged();
        content.will_write(2, 0, 2 * BLOCK);
        let mut mixed = blocks(7, 1, 0, 2 * BLOCK);
        mixed[BLOCK..].copy_from_slice(&block(7, 2, 1));
        assert!(content.clone().recovered(&mixed).is_ok());
        mixed[BLOCK + 100..].copy_from_slice(&block(7, 1, 1)[100..]);
        assert!(content.recovered(&mixed).is_err());
    }

    #[test]
    fn holes_are_allowed_only_beyond_what_was_acknowledged() {
        let mut content = written(&[1]);
        content.acknowledged();
        content.will_write(2, 2, BLOCK);
        let mut found = blocks(7, 1, 0, 2 * BLOCK);
        found.extend([0; BLOCK]);
        assert!(content.clone().recovered(&found).is_ok());
        found[..BLOCK].fill(0);
        assert!(content.recovered(&found).is_err());
    }

    #[test]
    fn truncated_bytes_never_come_back_once_acknowledged() {
        let mut content = written(&[1]);
        content.will_truncate(B + 100);
        content.acknowledged();
        content.will_truncate(2 * B);
        content.acknowledged();
        let mut found = blocks(7, 1, 0, 2 * BLOCK);
        assert!(content.clone().recovered(&found).is_err());
        found[BLOCK + 100..].fill(0);
        assert!(content.recovered(&found).is_ok());
    }

    #[test]
    fn what_was_recovered_is_the_base_of_the_next_round() {
        let mut content = written(&[1, 2]);
        content.recovered(&blocks(7, 1, 0, BLOCK + 10)).unwrap();
        assert_eq!(content.size(), B + 10);
        assert!(
            content
                .clone()
                .recovered(&blocks(7, 2, 0, BLOCK + 10))
                .is_err()
        );
        content.will_truncate(2 * B);
        let mut found = blocks(7, 1, 0, BLOCK + 10);
        found.resize(2 * BLOCK, 0);
        assert!(content.recovered(&found).is_ok());
    }
}
