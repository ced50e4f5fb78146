//! Mutates bytes as a fuzzer does, reproducibly from a seed.

/// Numbers at which lengths and counts go wrong.
const EDGES: [u64; 10] = [
    0,
    1,
    0x7f,
    0xff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    i64::MAX as u64,
    u64::MAX - 1,
    u64::MAX,
];

/// A generator of mutations.
#[derive(Clone, Debug)]
pub struct Mutator(u64);

impl Mutator {
    /// A mutator that always does the same for a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed ^ 0x9e37_79b9_7f4a_7c15)
    }

    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    /// A number below `limit`, which is not 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// A copy of `bytes` with one to eight mutations, some of them with parts of `other`.
    #[must_use]
    pub fn mutated(&mut self, bytes: &[u8], other: &[u8]) -> Vec<u8> {
        let mut out = bytes.to_vec();
        for _ in 0..=self.below(8) {
            self.mutate(&mut out, other);
        }
        out
    }

    fn mutate(&mut self, out: &mut Vec<u8>, other: &[u8]) {
        if out.is_empty() {
            out.push(self.next() as u8);
            return;
        }
        let at = self.below(out.len());
        match self.below(7) {
            0 => out[at] ^= 1 << self.below(8),
            1 => out[at] = self.next() as u8,
            2 => {
                let len = 1 << self.below(4);
                let edge = EDGES[self.below(EDGES.len())].to_le_bytes();
                for (byte, new) in out[at..].iter_mut().take(len).zip(edge) {
                    *byte = new;
                }
            }
            3 => out.truncate(at),
            4 => {
                let end = at + self.below((out.len() - at).min(64)) + 1;
                out.drain(at..end.min(out.len()));
            }
            5 => {
                let end = (at + 1 + self.below(64)).min(out.len());
                let twice = out[at..end].to_vec();
                out.splice(at..at, twice);
            }
            _ if other.is_empty() => out.push(self.next() as u8),
            _ => {
                let from = self.below(other.len());
                let end = (from + 1 + self.below(256)).min(other.len());
                let end_here = (at + end - from).min(out.len());
                out.splice(at..end_here, other[from..end].iter().copied());
            }
        }
    }
}

/// Calls `check` with every seed unchanged and with `times` mutated ones.
pub fn mutate_all(seeds: &[Vec<u8>], times: usize, check: impl Fn(&[u8])) {
    assert!(!seeds.is_empty(), "nothing to mutate");
    seeds.iter().for_each(|seed| check(seed));
    let mut mutator = Mutator::new(times as u64);
    for _ in 0..times {
        let (one, other) = (mutator.below(seeds.len()), mutator.below(seeds.len()));
        let mutated = mutator.mutated(&seeds[one], &seeds[other]);
        check(&mutated);
    }
}

/// The same with the seeds that a crate has for a fuzz target.
///
/// # Panics
/// When there are none.
pub fn mutate_corpus(krate: &std::path::Path, target: &str, times: usize, check: impl Fn(&[u8])) {
    let corpus = krate.join("fuzz/corpus").join(target);
    mutate_all(&seeds(&corpus), times, check);
}

/// The files of a directory of seeds.
///
/// # Panics
/// When there are none.
#[must_use]
pub fn seeds(dir: &std::path::Path) -> Vec<Vec<u8>> {
    let read = || -> std::io::Result<Vec<_>> {
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            paths.push(entry?.path());
        }
        paths.sort();
        paths.iter().map(std::fs::read).collect()
    };
    let seeds = read().unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    assert!(!seeds.is_empty(), "no seeds in {}", dir.display());
    seeds
}
