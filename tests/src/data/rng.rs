//! A small seeded generator, the same on every machine.

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator that always yields the same sequence for the same seed.
    pub fn new(seed: u64) -> Self {
        Rng(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; `bound` must not be 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next_u64() % bound
    }

    /// A number in `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True once in `n`.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Fills `buffer` with noise that no codec can shrink.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        for piece in buffer.chunks_mut(8) {
            let bytes = self.next_u64().to_le_bytes();
            piece.copy_from_slice(&bytes[..piece.len()]);
        }
    }

    /// `length` bytes of noise.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut buffer = vec![0; length];
        self.fill(&mut buffer);
        buffer
    }
}
