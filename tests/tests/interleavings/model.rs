//! Possible contents of a file while several threads change it, each in its own order.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::fixture::CHUNK;

/// One change of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    /// Offset, length and what is written.
    Write(usize, usize, u8),
    Truncate(usize),
    /// Offset and length.
    Punch(usize, usize),
}

impl Change {
    /// Where it begins and ends.
    fn edges(self) -> [usize; 2] {
        match self {
            Self::Write(at, len, _) | Self::Punch(at, len) => [at, at + len],
            Self::Truncate(size) => [size, size],
        }
    }

    fn apply(self, contents: &mut Vec<u8>) {
        match self {
            Self::Write(at, len, byte) => {
                let size = contents.len().max(at + len);
                contents.resize(size, 0);
                contents[at..at + len].fill(byte);
            }
            Self::Truncate(size) => contents.resize(size, 0),
            Self::Punch(at, len) => {
                let end = contents.len().min(at + len);
                if at < end {
                    contents[at..end].fill(0);
                }
            }
        }
    }
}

/// How many changes of each thread.
pub(crate) type Counts<const N: usize> = [usize; N];

/// All contents that changes can lead to, by how many of each thread have happened.
pub(crate) struct Model<const N: usize> {
    states: BTreeMap<Counts<N>, HashSet<Vec<u8>>>,
    /// Between one and the next all bytes are alike, whatever has happened.
    edges: BTreeSet<usize>,
}

impl<const N: usize> Model<N> {
    /// Changes happen one after the other, those of a thread in their order.
    pub(crate) fn new(base: &[u8], threads: &[&[Change]; N]) -> Self {
        let none = [0; N];
        let mut states = BTreeMap::from([(none, HashSet::from([base.to_vec()]))]);
        // Counts with one more change come later in the order of the keys.
        let mut next = Some(none);
        while let Some(counts) = next {
            for (thread, changes) in threads.iter().enumerate() {
                let Some(change) = changes.get(counts[thread]) else {
                    continue;
                };
                let mut after = counts;
                after[thread] += 1;
                let before: Vec<Vec<u8>> = states[&counts].iter().cloned().collect();
                let led = states.entry(after).or_default();
                for mut contents in before {
                    change.apply(&mut contents);
                    led.insert(contents);
                }
            }
            let mut later = states.range(counts..).skip(1);
            next = later.next().map(|(&counts, _)| counts);
        }
        let sizes = states.values().flatten().map(Vec::len);
        let longest = sizes.max().unwrap_or(0);
        let changes = threads.iter().flat_map(|changes| changes.iter());
        let edges = changes.flat_map(|change| change.edges());
        let chunks = (0..longest).step_by(CHUNK);
        Self {
            edges: edges.chain(chunks).chain([base.len(), longest]).collect(),
            states,
        }
    }

    fn between(&self, from: Counts<N>, to: Counts<N>) -> impl Iterator<Item = &Vec<u8>> {
        let inside = move |counts: &Counts<N>| {
            let mut each = counts.iter().zip(from.iter().zip(&to));
            each.all(|(count, (from, to))| from <= count && count <= to)
        };
        let states = self.states.iter();
        states
            .filter(move |(counts, _)| inside(counts))
            .flat_map(|(_, states)| states)
    }

    /// Whether a reader can see this after the changes `from` and before those beyond `to`.
    pub(crate) fn allows(&self, seen: &Vec<u8>, from: Counts<N>, to: Counts<N>) -> bool {
        self.between(from, to).any(|state| state == seen)
    }

    /// The same of its size alone.
    pub(crate) fn allows_size(&self, size: usize, from: Counts<N>, to: Counts<N>) -> bool {
        self.between(from, to).any(|state| state.len() == size)
    }

    /// Whether a loss of power can leave this when the changes `from` were synced. Any part of a
    /// later change may be there, so each piece is judged by itself.
    pub(crate) fn may_leave(&self, left: &[u8], from: Counts<N>, to: Counts<N>) -> bool {
        let states: Vec<&Vec<u8>> = self.between(from, to).collect();
        let mut left = left.to_vec();
        let longest = self.edges.last().copied().unwrap_or(0);
        left.resize(longest.max(left.len()), 0);
        let edges: Vec<usize> = self.edges.iter().copied().collect();
        left.len() == longest
            && edges.windows(2).all(|piece| {
                let (start, end) = (piece[0], piece[1]);
                let (first, alike) = (left[start], left[start..end - 1] == left[start + 1..end]);
                let may_be = |state: &&Vec<u8>| state.get(start).copied().unwrap_or(0) == first;
                alike && states.iter().any(may_be)
            })
    }
}

/// Which changes have begun, and which have been made. The scheduler does not switch in between.
pub(crate) struct Progress<const N: usize> {
    begun: [AtomicUsize; N],
    done: [AtomicUsize; N],
}

impl<const N: usize> Progress<N> {
    pub(crate) fn new() -> Self {
        Self {
            begun: [const { AtomicUsize::new(0) }; N],
            done: [const { AtomicUsize::new(0) }; N],
        }
    }

    /// A thread makes its next change.
    pub(crate) fn make(&self, thread: usize, change: impl FnOnce()) {
        self.begun[thread].fetch_add(1, Ordering::SeqCst);
        change();
        self.done[thread].fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn begun(&self) -> Counts<N> {
        std::array::from_fn(|thread| self.begun[thread].load(Ordering::SeqCst))
    }

    pub(crate) fn done(&self) -> Counts<N> {
        std::array::from_fn(|thread| self.done[thread].load(Ordering::SeqCst))
    }
}
